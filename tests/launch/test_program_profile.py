"""profile.file: the trace that a program wrote becomes its run's profile, and two runs are compared by it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.commands import events, launch
from tests.tracking.measure.kernels.test_program_trace import of_xla
from tests.tracking.measure.kernels.traces import of_gpu
from tracking.cli.parser import main
from tracking.measure import kernels
from tracking.record import journal, run_folder

pytestmark = pytest.mark.slow
OFFLINE = ("model=program", "gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")
WRITES = "bash -c 'mkdir {run_dir}/t && cp %s {run_dir}/t/vm.trace.json && echo acc 0.9'"


def test_two_frameworks_share_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "torch.json").write_text(json.dumps(of_gpu()))
    (tmp_path / "jax.json").write_text(json.dumps(of_xla()))
    folders = []
    for name in ("torch", "jax"):
        (tmp_path / name).mkdir()
        command = f"program.command={WRITES % (tmp_path / f'{name}.json')}"
        launched = launch(tmp_path / name, *OFFLINE, command, "profile.file={run_dir}/t/*.json")
        assert launched.code == 0, launched.output
        folders.append(launched.folder)
        profile = kernels.read((launched.folder / kernels.PROFILE).read_text())
        assert (profile.num_steps, profile.traces) == (2, [kernels.trace_name(0)])
        assert (launched.folder / kernels.trace_name(0)).stat().st_size
        said = [
            record.values for record, _ in journal.read(launched.folder / run_folder.JOURNAL) if record.kind == "tags"
        ]
        assert any(row.get("timetrial.uncounted") == "its kernels were traced while it trained" for row in said)
    capsys.readouterr()
    assert main(["diff", *map(str, folders), "--kernels", "--from-folders", "--runs-dir", str(tmp_path)]) == 0
    # The convolution takes 400 of 1,400 us of PyTorch's kernels (a step before the trace launched another), and 400 of
    # 600 us of JAX's.
    assert "1 kernel is in both, with 29% of the kernels' time in A and 67% in B" in capsys.readouterr().out


def test_a_program_that_leaves_no_trace_has_its_figures_and_is_told_why_there_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text("{")
    for command, file, words in (
        ("echo acc 0.9", "{run_dir}/t/*.json", "the program wrote no such file"),
        ("echo acc 0.9", "torn.json", "is older than the run"),
    ):
        folder = tmp_path / words.split()[-1]
        folder.mkdir()
        (folder / "torn.json").write_text("{")

        os.utime(folder / "torn.json", (1e9, 1e9))
        launched = launch(folder, *OFFLINE, f"program.command={command}", f"profile.file={file}")
        assert launched.code == 0, launched.output
        assert "no profile: profile.file" in " ".join(launched.output.split())
        assert words in " ".join(launched.output.split())
        (stopped,) = events(launched.folder, "profile_stop")
        assert words in stopped.values["error"]
        assert kernels.read((launched.folder / kernels.PROFILE).read_text()).num_steps == 0
