"""The types of reports. docs/json.md says what each field means; fields may be added at any time."""

from __future__ import annotations

from typing import Literal, TypedDict


class Candidate(TypedDict, total=False):
    """One way to allocate a kernel that was compared: either both ratios or a reason."""

    name: str
    alone: float
    full: float
    reason: str


class Choice(TypedDict):
    """What was chosen for a kernel."""

    chosen: str
    reason: str
    candidates: list[Candidate]


class _FunctionReport(TypedDict):
    file: str
    name: str
    line: int
    entry: bool
    instructions: int
    vregs: int
    warnings: list[str]
    outcome: Literal["allocated", "passed", "kept", "refused", "skipped"]


class FunctionReport(_FunctionReport, total=False):
    """What became of a function. Figures are there where it was allocated, a reason where it was not."""

    reason: str
    choice: Choice
    budget: int
    registers: int
    registers_named: int
    predicates: int
    frame_local: int
    frame_shared: int
    values: int
    spilled: int
    spill_rate: float
    rematerialised: int
    hoisted: int
    copies: int
    coalesced: int
    coalescing_rate: float
    iterations: int
    fell_back: bool
    live_through_calls: int
    moves: int
    stores: int
    reloads: int
    recomputes: int
    shared_slot_bytes: int
    graph: dict[str, float]
    seconds: dict[str, float]


class TextPeak(TypedDict):
    """The greatest pressure on a register file in PTX."""

    file: str
    registers: int
    line: int | None


class _TextFunction(TypedDict):
    name: str
    entry: bool
    line: int


class TextFunction(_TextFunction, total=False):
    """A function in PTX: figures, or the reason why it is not understood."""

    instructions: int
    vregs: int
    peaks: list[TextPeak]
    floor: int
    reason: str


class TextStats(TypedDict):
    """The measures of PTX."""

    schema: int
    file: str
    functions: list[TextFunction]


class SourceLine(TypedDict):
    """A line of the source."""

    file: str
    line: int


class CodePeak(TypedDict):
    """The greatest pressure on a register file in machine code."""

    file: str
    registers: int
    named: int
    offset: int | None
    mnemonic: str | None
    source: SourceLine | None
    ptx_line: int | None


class LocalAccesses(TypedDict):
    """Accesses of local memory at one loop depth."""

    depth: int
    loads: int
    stores: int


class Refused(TypedDict):
    """An instruction that is not understood."""

    offset: int | None
    reason: str


class _CodeFunction(TypedDict):
    name: str
    demangled: str | None
    entry: bool
    code_bytes: int
    registers: int | None
    frame_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int
    constant_bytes: int | None
    inner: list[str]
    block_threads: int | None
    occupancy: dict[str, object] | None


class CodeFunction(_CodeFunction, total=False):
    """A function in machine code: what it is given, and what it needs or why that is not known."""

    instructions: int
    loop_depth: int
    peaks: list[CodePeak]
    local: list[LocalAccesses]
    refused: Refused


class _Image(TypedDict):
    arch: str
    member: str | None
    section: str | None
    index: int | None
    offset: int
    bytes: int
    compression: Literal["lz4", "zstd"] | None


class Image(_Image, total=False):
    """A cubin in a file."""

    functions: list[CodeFunction]
    error: str


class CodeStats(TypedDict):
    """The measures of machine code."""

    schema: int
    file: str
    format: Literal["cubin", "fatbin", "elf", "archive", "other"]
    images: list[Image]
