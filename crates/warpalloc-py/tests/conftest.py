"""Kernels, and the command that was installed with the module under test."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "corpus" / "ptx"

# Registers `%r1` to `%r40` are all live at once.
WIDE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry wide(.param .u64 p)
{
  .reg .u64 %rd<3>;
  .reg .u32 %r<42>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
""" + "".join(f"  ld.volatile.global.u32 %r{n}, [%rd2+{4 * n}];\n" for n in range(1, 41)) + "".join(
    f"  st.global.u32 [%rd2+{4 * n}], %r{n};\n" for n in range(1, 41)) + """  ret;
}
"""


@pytest.fixture
def wide() -> str:
    return WIDE


@pytest.fixture
def corpus() -> Path:
    return CORPUS


@pytest.fixture
def ptxas() -> str:
    """The real assembler, where there is one."""
    path = os.environ.get("WARPALLOC_PTXAS")
    if path is None:
        assert os.environ.get("WARPALLOC_REQUIRE_PTXAS") != "1", "ptxas is required: set WARPALLOC_PTXAS"
        pytest.skip("no ptxas; set WARPALLOC_PTXAS")
    return path


@pytest.fixture
def cubin(ptxas: str, corpus: Path, tmp_path: Path) -> bytes:
    """A cubin with two kernels."""
    out = tmp_path / "saxpy.cubin"
    subprocess.run([ptxas, "-arch", "sm_90", "-o", out, corpus / "saxpy.sm_90.ptx"], check=True)
    return out.read_bytes()


def command(*args: str | os.PathLike[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command that the wheel installed."""
    program = Path(sysconfig.get_path("scripts")) / "warpalloc"
    return subprocess.run([program, *args], input=stdin, capture_output=True, text=True, check=False)
