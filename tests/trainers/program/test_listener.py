"""What of a program's output is kept, and what the program is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.launch_options import ProgramConfig
from conf.schema import PROGRAM, ModelConfig, PrecisionConfig, RunConfig
from tests.commands import ROOT
from trainers.program import listener, process


def test_of_much_output_the_beginning_and_the_end_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "COPIED_BYTES", 100)
    monkeypatch.setattr(listener, "LAST_BYTES", 10)
    with (tmp_path / "log").open("wb") as file:
        copy = listener.Copy(file.fileno())
        for _ in range(50):
            copy.write(b"x" * 60)
        copy.write(b"last words")
        copy.end()
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"x" * 100 + b"\n[")
    assert text.endswith(b"]\nlast words")


def config(command: str, **options: object) -> RunConfig:
    model = ModelConfig("mine", PROGRAM, 1)
    precision = PrecisionConfig("fp32", "32-true")
    return RunConfig(model=model, precision=precision, program=ProgramConfig(command), **options)  # type: ignore[arg-type]


def test_a_program_sees_the_runs_gpus_its_own_path_and_nothing_of_ours(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": f"{ROOT}:/mine", "TIMETRIAL_LAUNCHER": "1", "CUDA_VISIBLE_DEVICES": "3,5,7", "A": "b"}
    given = process.environment(config("x", gpus=2), tmp_path, environ)
    assert given == {
        "PYTHONPATH": "/mine", "CUDA_VISIBLE_DEVICES": "3,5", "A": "b",
        "TIMETRIAL_JOURNAL": str(tmp_path / ".program.jsonl"),
    }  # fmt: skip
    assert process.environment(config("x", gpus=0), tmp_path, environ)["CUDA_VISIBLE_DEVICES"] == ""
    assert process.environment(config("x", gpus=2), tmp_path, {})["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("command", "ending"),
    [("python t.py {seed}", ["2", "t.py", "7"]), ("./t {gpus}", ["2", "--no-python", "./t", "2"])],
)
def test_torchrun_starts_a_process_a_device(tmp_path: Path, command: str, ending: list[str]) -> None:
    asked = config(command, gpus=2, seed=7)
    asked.program.launch = "torchrun"
    words = process.command(asked, tmp_path)
    assert words[words.index("--nproc-per-node") + 1 :] == ending
