"""Parts of a step are compiled by several processes, each part once, and the run loads what the others kept."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from tests.support.composing import ROOT, composed
from tests.support.folders import wait_for
from tracking.record import run_folder
from tracking.request import checks
from trainers.loop.build import build
from trainers.loop.warmup import evaluating, keep_traces, kept_traces, parallel
from trainers.loop.warmup.compile_first import TRACES
from trainers.workload import Shard, load_workload

CPU = torch.device("cpu")


def unexpected() -> None:
    raise AssertionError("the helper takes this part")


def test_each_part_is_taken_once() -> None:
    (waiting, numbers), (started, taken) = os.pipe(), os.pipe()
    os.write(numbers, bytes([1, parallel.EVALUATION]))
    os.close(numbers)
    assert [*parallel.taken_numbers(waiting, taken)] == [1, parallel.EVALUATION]
    assert not [*parallel.taken_numbers(waiting, taken)]
    assert parallel.written(started).split() == [str(os.getpid()).encode()] * 2
    assert parallel.written(started) == b"", "it does not wait"
    for descriptor in (waiting, started, taken):
        os.close(descriptor)


def test_training_on_every_shape_comes_first() -> None:
    done: list[str] = []
    batches: list[Any] = ["wide", "high"]
    parts = parallel.parts(batches, lambda batch: done.append(f"train {batch}"), done.append)
    for part in parts.values():
        part()
    assert done == ["train wide", "train high", "wide", "high"]
    training = parallel.parts(batches, done.append, None)
    assert [*training] == [*parts][:2], "a part has one number, with and without evaluation"


@pytest.mark.parametrize(
    ("device", "kept", "num_parts", "cores", "number"),
    [("cuda", 2, 6, 64, 5), ("cuda", 2, 6, 16, 3), ("cuda", 2, 2, 64, 1), ("cuda", 2, 1, 64, 0),
     ("cuda", 2, 6, 4, 0), ("cuda", 1, 6, 64, 0), ("cpu", 2, 6, 64, 0)],
)  # fmt: skip
def test_helpers_are_for_gpus_and_kept_traces_as_the_cores_allow(
    monkeypatch: pytest.MonkeyPatch, device: str, kept: int, num_parts: int, cores: int, number: int
) -> None:
    monkeypatch.setattr(parallel, "num_cores", lambda: cores)
    module: Any = SimpleNamespace(device=torch.device(device))
    for place in range(kept):
        setattr(module, f"function{place}", object.__new__(kept_traces.KeptTraces))
    assert parallel.number_of_helpers(module, num_parts) == number


@pytest.mark.slow
@pytest.mark.parametrize("command", ["/bin/true", "/bin/false", "/nowhere/python"])
def test_what_fails_beside_a_run_is_left_to_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(parallel.sys, "executable", command)

    def full() -> None:
        raise torch.OutOfMemoryError

    done: list[int] = []
    open_before = len([*Path("/proc/self/fd").iterdir()])
    helpers = parallel.Helpers(tmp_path, 2)
    helpers.compile({0: partial(done.append, 1), 1: full, 128: partial(done.append, 2)})
    helpers.end()
    assert done == [1]
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


@pytest.mark.slow
def test_a_process_that_was_forked_while_the_data_were_made_holds_nothing_up(tmp_path: Path) -> None:
    helpers = parallel.Helpers(tmp_path, 0)
    with subprocess.Popen(["sleep", "1000"], pass_fds=[helpers._numbers]) as forked:
        done: list[int] = []
        helpers.compile({0: partial(done.append, 1), 128: partial(done.append, 2)})
        forked.kill()
    helpers.end()
    assert done == [1, 2]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_helpers_that_wait_for_their_parts_end_with_the_run(tmp_path: Path) -> None:
    """Those of one that ends, and those of one whose process is killed."""
    code = f"""
import os, signal, sys, time
from pathlib import Path
from trainers.loop.warmup.parallel import Helpers
ended, killed = (Helpers(Path({str(tmp_path)!r}), 1) for _ in range(2))
print(*(process.pid for helpers in (ended, killed) for process in helpers._processes), flush=True)
sys.stdin.read(1)
ended.end()
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment, ends = {**os.environ, "PYTHONPATH": str(ROOT)}, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **ends) as run:  # type: ignore[call-overload]
        pids = [int(word) for word in run.stdout.readline().split()]
        wait_for(lambda: all(map(imports_pytorch, pids)))
        try:
            for place, pid in enumerate(pids):
                run.stdin.write("x")
                run.stdin.flush()
                wait_for(lambda pid=pid: not Path("/proc", str(pid)).exists(), 10)
                assert (run.poll() is None) == (place == 0)
        finally:
            run.kill()


def imports_pytorch(pid: int) -> bool:
    return "libtorch" in Path("/proc", str(pid), "maps").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_the_run_loads_what_a_helper_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["model=ncf", "recipe=ncf_cpu", "dataset.size=100000", "gpus=0", "compile=true", "precision=bf16"]
    config = checks.check_run(composed(words), [])
    (tmp_path / "run").mkdir()
    run_folder.write_config(tmp_path / "run", config)
    module, data = build(load_workload(config), config, Shard(0, 1, CPU), None)
    keep_traces(config)
    module.compile_hot_path()
    [batch] = data.example_batches(config.device_batch_size(), CPU)
    plugin = MixedPrecision("bf16-mixed", "cpu")
    traces = tmp_path / "inductor" / TRACES

    def evaluate() -> None:
        """The run's own part, which lasts until the helper has compiled its: training, forwards and backwards."""
        wait_for(lambda: any(traces.glob("*.trace")))
        with evaluating(module), torch.no_grad(), plugin.val_step_context():
            module.validation_step(batch, 0)

    # The helper's part is training: this process begins with evaluation.
    counters, before = torch._dynamo.utils.counters["inductor"], counts()
    helpers = parallel.Helpers(tmp_path / "run", 1)
    helpers.compile({parallel.EVALUATION: evaluate, 0: unexpected})
    helpers.end()
    assert counts() == (before[0], before[1] + 1), "evaluation was compiled here, and run without its compiled code"
    assert parallel.WAITS_SEC
    misses = counters["fxgraph_cache_miss"]
    with plugin.train_step_context():
        loss = module.training_step(batch, 0)
    loss.backward()
    assert counts() == (before[0] + 1, before[1] + 1), "training was loaded"
    assert counters["fxgraph_cache_miss"] == misses, "with its backward pass"


def counts() -> tuple[int, int]:
    """How many functions were loaded and kept so far."""
    return len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)
