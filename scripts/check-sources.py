#!/usr/bin/env python3
"""Checks that docs/sources.md is true to the tree.

Every fact must have a status and a test, every file and every test it names must exist, its links must lead somewhere, and every
`sources.md#anchor` cited in code or on another page must be one of its anchors.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "sources.md"


def tracked(*patterns):
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    output = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    return [path for path in output.stdout.splitlines() if (ROOT / path).is_file()]


def slug(heading):
    """The anchor that Markdown gives to a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def anchors(path):
    text = (ROOT / path).read_text()
    explicit = re.findall(r'<a id="([^"]+)">', text)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return explicit, set(explicit) | {slug(heading) for heading in headings}


def main():
    page = PAGE.read_text()
    sources = tracked("*.rs")
    code = "\n".join((ROOT / path).read_text() for path in sources)
    functions = set(re.findall(r"\bfn (\w+)", code))
    tests = set(re.findall(r"#\[test\](?:\s*#\[[^\n]*\])*\s*fn (\w+)", code))
    own, own_and_headings = anchors("docs/sources.md")
    problems = [f"the anchor `{a}` stands twice" for a in sorted(set(own)) if own.count(a) > 1]

    facts = page[: page.index('<a id="contradictions">')].split("\n### ")[1:]
    for title, _, fact in (fact.partition("\n") for fact in facts):
        if not re.search(r"^\*\*(As reported|Differently|Inert|Absent)\b", fact, re.MULTILINE):
            problems.append(f"`{title}` has no status")
        if not re.search(r"\*(Test|File):\*|\*Nothing to test\.\*", fact):
            problems.append(f"`{title}` has no test")
    for name in set(re.findall(r"`([\w./-]+\.rs)`", page)):
        if not any(f"/{path}".endswith(f"/{name}") for path in sources):
            problems.append(f"there is no file `{name}`")
    for name in set(re.findall(r"`(\w+\.txt)`", page)):
        if not tracked(f"*/filetests/{name}"):
            problems.append(f"there is no file test `{name}`")
    # A name of four words or more is a test, or in parentheses behind a file a function.
    for before, name in set(re.findall(r"(.)`(\w+)`", page, re.DOTALL)):
        if name.count("_") >= 3 and name not in (functions if before == "(" else tests):
            problems.append(f"there is no test `{name}`")
    for link in set(re.findall(r"\]\(([^)]+)\)", page)):
        target, _, anchor = link.partition("#")
        known = own_and_headings
        if target:
            if not (PAGE.parent / target).is_file():
                problems.append(f"the link `{link}` leads to no page")
                continue
            known = anchors(f"docs/{target}")[1]
        if anchor and anchor not in known:
            problems.append(f"the link `{link}` leads to no anchor")

    for path in tracked("*.rs", "*.md", "*.py", "*.toml"):
        if path in ("docs/sources.md", "scripts/check-sources.py"):
            continue
        for anchor in re.findall(r"sources\.md#([\w-]+)", (ROOT / path).read_text()):
            if anchor not in own:
                problems.append(f"{path} cites `sources.md#{anchor}`, which is no anchor")

    for problem in sorted(problems):
        print(f"docs/sources.md: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
