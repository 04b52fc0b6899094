"""What is installed beside the functions."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest
import warpalloc
from conftest import command


def test_the_command_is_of_the_same_version() -> None:
    assert command("--version").stdout == f"warpalloc {warpalloc.__version__}\n"
    assert metadata.version("warpalloc") == warpalloc.__version__


def test_the_module_is_for_every_python() -> None:
    names = [file.name for file in resources.files(warpalloc).iterdir()]
    assert "py.typed" in names
    assert any(name.startswith("_warpalloc.abi3.") for name in names), names


def test_the_module_is_not_bound_to_one_python() -> None:
    [module] = [file for file in resources.files(warpalloc).iterdir() if file.name.startswith("_warpalloc.abi3.")]
    assert b"libpython" not in module.read_bytes()


def test_types_are_whole() -> None:
    pytest.importorskip("mypy")
    here = Path(__file__).parent
    for checked in (["--package", "warpalloc"], sorted(here.glob("*.py"))):
        run = subprocess.run([sys.executable, "-m", "mypy", "--config-file", here.parent / "pyproject.toml", *checked],
                             capture_output=True, text=True, cwd=here, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
