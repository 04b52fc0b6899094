"""What made a table: versions of tools, and the commit of this tree."""
import subprocess


def version(tool):
    """The last line of what a tool says of itself."""
    return output(tool, "--version").strip().splitlines()[-1]


def commit():
    return output("git", "describe", "--always", "--dirty").strip()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
