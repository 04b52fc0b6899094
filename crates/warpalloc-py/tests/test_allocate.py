from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import warpalloc
from conftest import command


def test_a_cap_makes_spills(wide: str) -> None:
    made = warpalloc.allocate(wide, maxnreg=24, regalloc="briggs")
    [function] = made.functions
    assert function["name"] == "wide"
    assert function["outcome"] == "allocated"
    assert function["registers"] <= 24
    assert function["spilled"] > 0
    assert ".maxnreg 24" in made.ptx
    assert made.cubin is None


def test_the_result_is_that_of_the_command(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "sgemm_rb.sm_90.ptx"
    out = tmp_path / "out.ptx"
    run = command("alloc", path, "-o", out, "--maxnreg", "80", "--regalloc", "scan", "--print-regalloc-stats=json")
    assert run.returncode == 0, run.stderr
    made = warpalloc.allocate(path.read_text(), maxnreg=80, regalloc="scan", name=str(path))
    assert made.ptx == out.read_text()
    told = json.loads(run.stdout)["functions"]
    for function in [*made.functions, *told]:
        function.pop("seconds", None)
    assert made.functions == told


def test_bytes_are_text_too(wide: str) -> None:
    made = [warpalloc.allocate(text, maxnreg=24, regalloc="scan") for text in (wide, wide.encode())]
    assert made[0].ptx == made[1].ptx


def test_entries_are_chosen_by_name(corpus: Path) -> None:
    text = (corpus / "calls.sm_90.ptx").read_text()
    names = [f["name"] for f in warpalloc.allocate(text, maxnreg=64, regalloc="scan").functions]
    assert len(names) > 1
    made = warpalloc.allocate(text, maxnreg=64, regalloc="scan", entry=names[0])
    assert [f["outcome"] == "skipped" for f in made.functions] == [name != names[0] for name in names]


def test_the_best_is_chosen_with_ptxas(corpus: Path, ptxas: str) -> None:
    text = (corpus / "sgemm_rb.sm_90.ptx").read_text()
    made = warpalloc.allocate(text, maxnreg=64, ptxas=ptxas, cache=False, cubin=True)
    assert all("candidates" in f["choice"] for f in made.functions if f["entry"])
    assert made.notes
    assert made.cubin is not None and made.cubin[:4] == b"\x7fELF"


def errors(text: str) -> list[tuple[dict[str, object], list[str], str]]:
    """Arguments, the same as flags, and a text, none of which is allocated."""
    return [
        ({"maxnreg": 10}, ["--maxnreg=10"], text),
        ({"maxnreg": 24, "entry": "no"}, ["--maxnreg=24", "--entry=no"], text),
        ({"maxnreg": 24, "regalloc": "best", "ptxas": "/no/ptxas"}, ["--maxnreg=24", "--regalloc=best", "--ptxas=/no/ptxas"],
         text),
        ({"regalloc": "other"}, ["--regalloc=other"], text),
        ({"flags": ["--knob=Nothing=1"]}, ["--knob=Nothing=1"], text),
        ({"regalloc": "scan"}, ["--regalloc=scan"], text.replace("ret;", "ret")),
        ({"regalloc": "scan", "strict": True, "maxnreg": 32}, ["--regalloc=scan", "--strict", "--maxnreg=32"],
         text.replace("ret;", "frob.b32 %r1, %r2; ret;")),
    ]


@pytest.mark.parametrize("case", range(7))
def test_errors_have_the_text_of_the_command(wide: str, case: int) -> None:
    arguments, flags, text = errors(wide)[case]
    run = command("alloc", "-", "-q", *flags, stdin=text)
    assert run.returncode != 0
    with pytest.raises(warpalloc.Error) as raised:
        warpalloc.allocate(text, name="<stdin>", **arguments)  # type: ignore[arg-type]
    told = str(raised.value)
    assert told
    assert run.stderr.startswith(f"error: {told}\n"), run.stderr
    assert isinstance(raised.value, warpalloc.UsageError) == (run.returncode == 2)


def test_what_is_left_alone_is_a_warning(wide: str) -> None:
    made = warpalloc.allocate(wide.replace("ret;", "frob.b32 %r1, %r2; ret;"), maxnreg=32, regalloc="scan")
    assert [f["outcome"] for f in made.functions] == ["passed"]
    assert "frob" in made.warnings[0]


def test_threads_allocate_at_once(wide: str) -> None:
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda _: warpalloc.allocate(wide, maxnreg=24, regalloc="fatpoint").ptx, range(8)))
    assert len(set(made)) == 1
