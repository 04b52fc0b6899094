"""Builds the wheel: maturin packs a module or a program, and this wheel has both.

The program is built first and laid where maturin looks for scripts. `MATURIN_PEP517_ARGS="--profile dev"` builds both
in that profile.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import (  # noqa: F401  (hooks that pip calls)
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "warpalloc.data" / "scripts"
# maturin wants the folder even where it only writes metadata.
SCRIPTS.mkdir(parents=True, exist_ok=True)
# A wheel has no use for line tables.
os.environ.setdefault("CARGO_PROFILE_RELEASE_STRIP", "true")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    shutil.copy2(command(), SCRIPTS)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def command():
    """The path of the program, freshly built."""
    words = shlex.split(os.environ.get("MATURIN_PEP517_ARGS", ""))
    profile = words[words.index("--profile") + 1] if "--profile" in words else "release"
    built = subprocess.run(
        ["cargo", "build", "--locked", "--package", "warpalloc-cli", "--profile", profile, "--message-format=json"],
        cwd=HERE, stdout=subprocess.PIPE, check=False, text=True)
    if built.returncode:
        sys.exit("cargo could not build the command")
    messages = map(json.loads, built.stdout.splitlines())
    return next(path for message in messages if (path := message.get("executable")))
