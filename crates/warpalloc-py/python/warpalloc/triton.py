"""A place in Triton's pipeline.

    import warpalloc.triton
    warpalloc.triton.install()

From then on, kernels in which ptxas spills are compiled from the allocation that is expected to be fastest; all others,
and any in doubt, are compiled as they are. Triton says how much shared memory a launch gets, which ptxas is not told, so
this reaches kernels that ``TRITON_PTXAS_PATH`` cannot. What was done is logged to the logger ``warpalloc.triton``, at the
level INFO where a kernel was replaced.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from typing import Any

from . import Error, __version__, allocate

__all__ = ["install", "uninstall"]

_log = logging.getLogger(__name__)
# Registers that a thread can have.
_MOST = 255
_Hook = Callable[..., Any]
_installed: _Pipeline | None = None


def install(*, ptxas: str | os.PathLike[str] | None = None, cache: bool = True) -> None:
    """Puts the allocator between the PTX and the cubin of every kernel that Triton compiles from now on.

    A hook that is installed already is called first. Kernels in Triton's cache that were compiled without the allocator
    are compiled anew.

    :param ptxas: the ptxas that compares allocations; Triton's own by default.
    :param cache: whether choices are kept from one process to the next.
    :raises RuntimeError: where Triton has no such hook.
    """
    global _installed
    uninstall()
    runtime = _runtime()
    pipeline = _Pipeline(runtime.add_stages_inspection_hook, ptxas, cache)
    runtime.add_stages_inspection_hook = pipeline
    _installed = pipeline


def uninstall() -> None:
    """Takes it out again; a hook that was there before :func:`install` is put back."""
    global _installed
    if _installed is not None and _runtime().add_stages_inspection_hook is _installed:
        _runtime().add_stages_inspection_hook = _installed.before
    _installed = None


def _runtime() -> Any:
    try:
        from triton import knobs  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise RuntimeError("warpalloc.triton needs Triton 3.5 or newer, and there is none") from error
    if not hasattr(knobs.runtime, "add_stages_inspection_hook"):
        raise RuntimeError("warpalloc.triton needs a Triton whose pipeline has a hook: 3.5 or newer")
    return knobs.runtime


class _Pipeline:
    """The hook: without arguments it says what results depend on, with them it changes the stages."""

    def __init__(self, before: _Hook | None, ptxas: str | os.PathLike[str] | None, cache: bool) -> None:
        self.before = before
        self.ptxas = ptxas
        self.cache = cache

    def __call__(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> tuple[str, str] | None:
        if stages is None:
            key = f"-warpalloc-{__version__}-{self.ptxas}"
            if self.before is not None:
                key = self.before()[0] + key
            return key, hashlib.sha256(key.encode()).hexdigest()
        if self.before is not None:
            self.before(backend, stages, options, language, capability)
        # Other backends make other machine code.
        if "ptx" in stages and "cubin" in stages:
            assemble = stages["cubin"]
            stages["cubin"] = lambda ptx, metadata: assemble(self.allocated(ptx, metadata, backend, options), metadata)
        return None

    def allocated(self, ptx: str, metadata: dict[str, Any], backend: Any, options: Any) -> str:
        """The best PTX for a kernel, which is what came where anything is in doubt."""
        name = metadata.get("name", "the kernel")
        try:
            made = allocate(
                ptx,
                maxnreg=getattr(options, "maxnreg", None) or _MOST,
                dynamic_shared=metadata.get("shared"),
                contract="ptxas" if getattr(options, "enable_fp_fusion", True) else "off",
                ptxas=self.ptxas or _ptxas_of(backend),
                cache=self.cache,
            )
        except Error as error:
            _log.debug("%s is compiled as it is: %s", name, error)
            return ptx
        except Exception:
            _log.warning("%s is compiled as it is: warpalloc failed, which is a defect", name, exc_info=True)
            return ptx
        choices = [function["choice"] for function in made.functions if "choice" in function]
        for choice in choices:
            is_replaced = choice["chosen"] != "original"
            _log.log(logging.INFO if is_replaced else logging.DEBUG, "%s: %s: %s", name, choice["chosen"], choice["reason"])
        return made.ptx if any(choice["chosen"] != "original" for choice in choices) else ptx


def _ptxas_of(backend: Any) -> str | None:
    """The ptxas that Triton will call."""
    try:
        from triton.backends.nvidia.compiler import get_ptxas  # type: ignore[import-not-found, unused-ignore]

        return str(get_ptxas(backend.target.arch).path)
    except (ImportError, AttributeError, TypeError):
        return None
