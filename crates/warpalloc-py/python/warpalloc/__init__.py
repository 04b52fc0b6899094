"""A register allocator for NVIDIA GPUs.

    import warpalloc

    made = warpalloc.allocate(ptx, maxnreg=64)       # PTX in, PTX out
    print(made.ptx, made.functions[0]["outcome"])
    warpalloc.stats("libkernels.so", sm=90)          # what kernels take and need

    import warpalloc.triton
    warpalloc.triton.install()                       # a place in Triton's pipeline

What the command `warpalloc` prints as an error is raised as :class:`Error` with the same text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import _warpalloc
from ._reports import CodeStats, FunctionReport, TextStats
from ._warpalloc import Error, UsageError

__all__ = ["Allocation", "CodeStats", "Error", "FunctionReport", "TextStats", "UsageError", "allocate", "stats"]
__version__ = _warpalloc.VERSION


@dataclass(frozen=True)
class Allocation:
    """What :func:`allocate` made of a module."""

    ptx: str
    """The PTX, in which functions that were left alone are as they were."""
    cubin: bytes | None
    """The machine code, where that was asked for."""
    functions: list[FunctionReport]
    """What became of each function with a body, in the order of the text."""
    warnings: list[str]
    """What did not come out as asked for."""
    notes: list[str]
    """What was chosen for each kernel, and why."""


def allocate(
    ptx: str | bytes,
    *,
    maxnreg: int | None = None,
    regalloc: Literal["best", "briggs", "fatpoint", "scan", "naive"] | None = None,
    entry: str | Sequence[str] = (),
    block: int | None = None,
    grid: int | None = None,
    dynamic_shared: int | None = None,
    occupancy_target: int | None = None,
    spill_space: Literal["local", "shared", "auto"] | None = None,
    contract: Literal["ptxas", "off", "keep"] | None = None,
    sm: int | str | None = None,
    ptxas: str | os.PathLike[str] | None = None,
    cache: bool = True,
    strict: bool = False,
    keep_going: bool = False,
    promote_local: bool = False,
    jobs: int | None = None,
    cubin: bool = False,
    name: str = "<ptx>",
    flags: Sequence[str] = (),
) -> Allocation:
    """Allocates the registers of every function of a PTX module, as ``warpalloc alloc`` does.

    Each argument is the flag of the same name, and `flags` takes any other, such as ``["--knob=NAME=1"]``;
    ``warpalloc help alloc`` describes them all. Without `regalloc`, several allocations are assembled by `ptxas` (the
    one on the path by default) and the best is kept, the module as it is among them.

    :param ptx: the module.
    :param maxnreg: the most registers per thread.
    :param entry: the functions to allocate; all by default.
    :param block: threads of a block, for entries that do not say.
    :param grid: blocks of a launch, where it is known.
    :param dynamic_shared: bytes of dynamic shared memory of a launch, for modules that have such memory.
    :param cache: whether choices are kept from one call to the next.
    :param cubin: whether machine code is wanted too; then spills that ptxas made may be moved in it.
    :param name: what errors call the module.
    :raises Error: with the text that the command prints.
    """
    words = [*flags]
    valued = {
        "maxnreg": maxnreg, "regalloc": regalloc, "block": block, "grid": grid, "dynamic-shared": dynamic_shared,
        "occupancy-target": occupancy_target, "spill-space": spill_space, "contract": contract, "sm": sm,
        "ptxas": None if ptxas is None else os.fspath(ptxas), "jobs": jobs,
    }
    words += [f"--{flag}={value}" for flag, value in valued.items() if value is not None]
    switches = {"no-cache": not cache, "strict": strict, "keep-going": keep_going, "promote-local": promote_local}
    words += [f"--{flag}" for flag, is_on in switches.items() if is_on]
    words += [f"--entry={one}" for one in ([entry] if isinstance(entry, str) else entry)]
    text = ptx.encode() if isinstance(ptx, str) else bytes(ptx)
    made, code, report, warnings, notes = _warpalloc.allocate(name, text, cubin, words)
    return Allocation(made, code, json.loads(report)["functions"], warnings, notes)


def stats(
    source: str | bytes | os.PathLike[str],
    *,
    sm: int | str | Sequence[int | str] = (),
    kernel: str | Sequence[str] = (),
    block: int | None = None,
) -> TextStats | CodeStats:
    """Measures the functions of PTX or machine code, as ``warpalloc stats --json`` does.

    :param source: a path, the bytes of a file, or PTX; a string with a line break in it is PTX, another is a path.
    :param sm: of machine code, only that for these architectures; of PTX, the machine it is measured for.
    :param kernel: of machine code, only functions with one of these in their name.
    :param block: of machine code, threads of a block, for the occupancy.
    :raises Error: with the text that the command prints.
    """
    words = [f"--sm={one}" for one in ([sm] if isinstance(sm, (int, str)) else sm)]
    words += [f"--kernel={one}" for one in ([kernel] if isinstance(kernel, str) else kernel)]
    if block is not None:
        words.append(f"--block={block}")
    if isinstance(source, str) and "\n" in source:
        source = source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        report = _warpalloc.stats_of_content("<bytes>", bytes(source), words)
    else:
        report = _warpalloc.stats_of_file(source, words)
    measured: TextStats | CodeStats = json.loads(report)
    return measured
