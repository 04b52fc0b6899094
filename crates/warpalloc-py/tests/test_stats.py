from __future__ import annotations

import json
from pathlib import Path

import pytest
import warpalloc
from conftest import command


def test_ptx_is_measured_from_text_bytes_and_file(corpus: Path) -> None:
    path = corpus / "saxpy.sm_90.ptx"
    told = json.loads(command("stats", "--json", path).stdout)
    assert told["functions"][0]["peaks"]
    for source in (path, str(path), path.read_text(), path.read_bytes()):
        assert warpalloc.stats(source)["functions"] == told["functions"]  # type: ignore[typeddict-item]


def test_cubins_are_measured(cubin: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.cubin"
    path.write_bytes(cubin)
    told = json.loads(command("stats", "--json", path, "--block=128").stdout)
    measured = warpalloc.stats(path, block=128)
    assert measured == told
    assert warpalloc.stats(cubin, block=128)["images"] == told["images"]  # type: ignore[typeddict-item]
    kernel = told["images"][0]["functions"][0]
    assert kernel["registers"] > 0 and kernel["occupancy"]["warps"] > 0


@pytest.mark.parametrize(("source", "arguments", "flags"), [
    ("no such file", {}, []),
    (".version\nx", {}, None),
    ("a.ptx", {"sm": "sm_banana"}, ["--sm=sm_banana"]),
    ("a.ptx", {"kernel": "k"}, ["--kernel=k"]),
])
def test_errors_have_the_text_of_the_command(
    source: str, arguments: dict[str, str], flags: list[str] | None, tmp_path: Path, wide: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ptx").write_text(wide)
    run = command("stats", source, *flags) if flags is not None else command("stats", "-", stdin=source)
    assert run.returncode != 0
    with pytest.raises(warpalloc.Error) as raised:
        warpalloc.stats(source, **arguments)  # type: ignore[arg-type]
    assert f"error: {raised.value}\n".replace("<bytes>", "<stdin>") in run.stderr + "\n"
