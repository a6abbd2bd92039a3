"""Files that unpack to far more than they are: of a stranger's folder none is unpacked."""

from __future__ import annotations

import ast
import gzip
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import ROOT
from tests.support.studied import CLOCKS, config, make_run, make_sweep
from tracking.cli import main
from tracking.measure.kernels.profile import trace_name
from tracking.record import checkpoints

UNPACK = {"gzip", "bz2", "lzma", "tarfile", "zipfile", "unpack_archive", "decompress", "decompressobj"}


def test_nothing_of_tracking_unpacks_but_checkpoints_and_compiled_code() -> None:
    """A program's own trace is unpacked too, up to a number of bytes."""
    unpacking = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "tracking").rglob("*.py") if UNPACK & names(path)
    }
    carried = {f"tracking/machine/compiled/{name}.py" for name in ("exporting", "importing")}
    # These pack, and unpack nothing.
    written = {"tracking/measure/kernels/merged_trace.py", "tracking/jobs/program/program_profile.py"}
    bounded = "tracking/measure/kernels/program_trace.py"  # reads most_bytes at most (test_program_trace.py)
    assert unpacking == {"tracking/record/checkpoints.py", bounded, *written, *carried}


def names(path: Path) -> set[str]:
    """What a module imports, and the attributes that it uses."""

    def each() -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (name.name.split(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (str(node.module).split(".")[0], *(name.name for name in node.names))
            elif isinstance(node, ast.Attribute):
                yield node.attr

    return {*each()}


def test_a_trace_that_would_fill_the_memory_is_never_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = make_sweep(tmp_path / "runs", "s", "sqlite:///x", 2)
    runs = [make_run(sweep, config(seed=seed), "sqlite:///x", 0.1, fingerprint=CLOCKS) for seed in (1, 2)]
    for run in runs:
        (run / trace_name(0)).write_bytes(gzip.compress(b" " * 2**26)[:-1000])  # It cannot be read to its end.
    options = ["--from-folders", "--runs-dir", str(tmp_path / "runs")]
    assert main(["report", "s", *options, "--out", str(tmp_path / "out"), "--check"]) == 0, capsys.readouterr()
    assert main(["diff", *map(str, runs), "--kernels", *options]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("how", ["deflated", "overlapping"])
def test_a_checkpoint_that_unpacks_to_more_than_it_has_is_damaged(tmp_path: Path, how: str) -> None:
    path = checkpoints.path_of(tmp_path, 1)
    path.parent.mkdir()
    kind = zipfile.ZIP_DEFLATED if how == "deflated" else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("weights", json.dumps([0] * 100_000))
        if how == "overlapping":  # One member is listed a hundred times.
            archive.filelist.extend(archive.filelist * 99)
    assert checkpoints.newest(tmp_path) is None
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", bytes(100_000))
    assert checkpoints.newest(tmp_path) is not None
