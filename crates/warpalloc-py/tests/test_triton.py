"""The hook, in a pipeline like Triton's, and in Triton's own where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import warpalloc
import warpalloc.triton


class Options:
    maxnreg = 32
    enable_fp_fusion = True


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's settings, without Triton."""
    knobs = types.SimpleNamespace(runtime=types.SimpleNamespace(add_stages_inspection_hook=None))
    module = types.ModuleType("triton")
    module.knobs = knobs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)
    yield knobs
    warpalloc.triton.uninstall()


def compiled(hook: Any, ptx: str, options: Any = Options) -> str:
    """What the stage that makes cubins gets."""
    stages = {"ptx": lambda source, metadata: source, "cubin": lambda source, metadata: source}
    assert hook(None, stages, options, None, 90) is None
    metadata = {"name": "wide", "shared": 0}
    result: str = stages["cubin"](stages["ptx"](ptx, metadata), metadata)
    return result


def test_a_kernel_that_spills_is_replaced(
    knobs: Any, corpus: Path, ptxas: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Tight(Options):
        maxnreg = 24

    caplog.set_level("INFO", "warpalloc.triton")
    # Triton writes the size of its blocks into the kernel.
    text = (corpus / "wide.sm_90.ptx").read_text().replace(")\n{", ")\n.reqntid 256\n{")
    best = warpalloc.allocate(text, maxnreg=24, ptxas=ptxas, cache=False, dynamic_shared=0)
    assert any(function["choice"]["chosen"] != "original" for function in best.functions if "choice" in function)
    warpalloc.triton.install(ptxas=ptxas, cache=False)
    assert compiled(knobs.runtime.add_stages_inspection_hook, text, Tight) == best.ptx
    assert "of the original's time" in caplog.text


def test_a_kernel_that_does_not_spill_is_compiled_as_it_is(knobs: Any, wide: str, ptxas: str) -> None:
    class Roomy(Options):
        maxnreg = None  # type: ignore[assignment]

    warpalloc.triton.install(ptxas=ptxas, cache=False)
    assert compiled(knobs.runtime.add_stages_inspection_hook, wide, Roomy) == wide


def test_what_is_not_understood_is_compiled_as_it_is(knobs: Any) -> None:
    warpalloc.triton.install(ptxas="/no/ptxas")
    assert compiled(knobs.runtime.add_stages_inspection_hook, "no ptx") == "no ptx"


def test_results_are_kept_apart_from_those_without_it(knobs: Any) -> None:
    warpalloc.triton.install()
    key, digest = knobs.runtime.add_stages_inspection_hook()
    assert warpalloc.__version__ in key and len(digest) == 64
    warpalloc.triton.install(ptxas="other")
    assert knobs.runtime.add_stages_inspection_hook()[0] != key


def test_a_hook_that_is_there_stays(knobs: Any) -> None:
    calls: list[int] = []

    def other(*args: Any) -> Any:
        calls.append(len(args))
        return None if args else ("other", "hash")

    knobs.runtime.add_stages_inspection_hook = other
    warpalloc.triton.install()
    hook = knobs.runtime.add_stages_inspection_hook
    assert hook()[0].startswith("other")
    compiled(hook, "")
    assert calls == [0, 5]
    warpalloc.triton.uninstall()
    assert knobs.runtime.add_stages_inspection_hook is other


def test_other_backends_are_left_alone(knobs: Any) -> None:
    warpalloc.triton.install()
    stages = {"amdgcn": 1, "hsaco": 2}
    knobs.runtime.add_stages_inspection_hook(None, stages, None, None, None)
    assert stages == {"amdgcn": 1, "hsaco": 2}


def test_a_triton_without_the_hook_is_told(knobs: Any) -> None:
    del knobs.runtime.add_stages_inspection_hook
    with pytest.raises(RuntimeError, match="3.5"):
        warpalloc.triton.install()
    knobs.runtime.add_stages_inspection_hook = None


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_triton_compiles_with_it(tmp_path: Path) -> None:
    script = """
import logging, sys
sys.path.insert(0, sys.argv[1])
import triton_ptx as cases
import warpalloc.triton
plain = cases.compiled("softmax", 90).asm["cubin"]
seen = []
class Handler(logging.Handler):
    def emit(self, record): seen.append(record.getMessage())
logger = logging.getLogger("warpalloc.triton")
logger.addHandler(Handler()); logger.setLevel("DEBUG")
warpalloc.triton.install(cache=False)
assert cases.compiled("softmax", 90).asm["cubin"] == plain
assert any("ptxas does not spill" in line for line in seen), seen
"""
    bench = Path(__file__).parents[3] / "bench"
    run = subprocess.run([sys.executable, "-c", script, bench], capture_output=True, text=True, check=False,
                         env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)})
    assert run.returncode == 0, run.stderr
