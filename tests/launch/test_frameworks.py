"""One network in two frameworks, each in a stack of its own, in one sweep: the folder docs/examples/frameworks."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, Launched, launch
from tracking.cli.parser import main
from tracking.record import journal, run_folder

# Each trains a ResNet for some ten seconds; test_programs.py and test_foreign_programs.py show the parts.
pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
EXAMPLES = ROOT / "docs/examples/frameworks"
OFFLINE = ("gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0", "precision=fp32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The examples, with this Python as PyTorch's stack: an environment of uv's would fetch it anew."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    stack = {"name": "pytorch", "kind": "python", "python": sys.executable}
    (tmp_path / "examples/stack/pytorch.yaml").write_text(json.dumps(stack))
    return tmp_path / "examples"


def swept(folder: Path, *words: str) -> Launched:
    given = ("--config-dir", str(folder), "-m", "model=resnet50_frameworks", f"program.cwd={folder}", *OFFLINE, *words)
    launched = launch(folder.parent, *given, TIMETRIAL_CACHE=str(folder.parent / "cache"))
    if any(words in launched.output for words in ("stack=jax: does not resolve", "stack=jax: cannot be made")):
        pytest.skip(f"jax, flax and optax cannot be installed here: {launched.output[-300:]}")
    return launched


def test_the_framework_is_an_axis_with_a_stack_for_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launched = swept(folder, "stack=pytorch,jax")
    assert launched.code == 0, launched.output
    said = {}
    for run in launched.folders:
        tags: dict[str, str] = {}
        for record, _ in journal.read(run / run_folder.JOURNAL):
            tags |= record.values if record.kind == "tags" else {}
        assert "env.stack_id" in tags
        said[run_folder.read_plain_config(run).stack.name] = tags["env.framework"].split()[0]
        result = run_folder.read_result(run)
        assert result is not None
        assert result.metrics["target_reached"] == 1
    assert said == {"pytorch": "pytorch", "jax": "jax"}
    runs = ["--from-folders", "--runs-dir", str(folder.parent / "runs")]
    names = [run.name for run in launched.folders]
    assert main(["report", *names, "--by", "env.framework", "--out", str(folder / "out"), "--check", *runs]) == 0
    shown = capsys.readouterr().out
    assert "pytorch 2" in shown
    assert "jax 0" in shown


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_the_compiler_is_an_option_of_the_command(folder: Path, framework: str) -> None:
    words = [f"python resnet50_{framework}.py --epochs 1 --compile {compiled}" for compiled in ("true", "false")]
    launched = swept(folder, f"stack={framework}", f"program.command='{words[0]}','{words[1]}'", "batch_size=64")
    assert launched.code != 0
    assert "batch_size=64: has no effect" in launched.output
    launched = swept(folder, f"stack={framework}", f"program.command='{words[0]}','{words[1]}'")
    assert launched.code == 0, launched.output
    assert len(launched.folders) == 2
