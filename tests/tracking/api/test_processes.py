"""Scripts that fork, that train twice at once, or have nowhere to write: the run is the training's alone."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from tests.support import forked
from tests.support.commands import HANGS_SEC, environment
from tests.tracking.api import own_script
from tracking.lightning import TimeTrial, time_trial
from tracking.record import journal, run_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
# The child ends as a script does: by leaving, by an error, or by going on with what the parent does.
FORKING = """
import os, sys
from tests.tracking.api import own_script
from tracking.lightning import TimeTrial

class Forking(own_script.Line):
    def training_step(self, batch, batch_idx):
        if self.global_step == 3 and not (child := os.fork()):
            {ending}
        elif self.global_step == 3:
            os.waitpid(child, 0)
        return super().training_step(batch, batch_idx)

trial = TimeTrial(offline=True, system_metrics_interval_sec=0, log_every_n_steps=2)
own_script.trainer(trial, max_epochs=2).fit(Forking(), *own_script.loaders())
print("fitted", os.getpid(), flush=True)
"""


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("sys.exit(0)", marks=pytest.mark.exhaustive),
        "raise ValueError('of the child')",
        pytest.param("pass", marks=pytest.mark.exhaustive),
    ],
)
def test_a_process_that_a_script_forks_within_a_step_is_not_its_run(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "forking.py"
    script.write_text(FORKING.format(ending=ending))
    process = forked.Forked([], tmp_path, environment(), script=str(script))
    printed, _ = process.communicate(timeout=HANGS_SEC)
    assert process.returncode == 0, printed
    (folder,) = (tmp_path / "runs").iterdir()
    result = run_folder.read_result(folder)
    assert result is not None
    assert (result.status, result.failure) == ("finished", None), printed
    keys = [event.key for event in journal.events(folder / run_folder.JOURNAL)]
    assert [keys.count(key) for key in ("run_start", "epoch_start", "epoch_stop", "run_stop")] == [1, 2, 2, 1]


def test_two_trainings_at_once_in_one_process_are_two_runs(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def train(seed: int) -> None:
        try:
            with time_trial({"accuracy": 0.5}, runs_dir=str(tmp_path), offline=True, device="cpu",
                            system_metrics_interval_sec=0, params={"place": seed}) as trial:  # fmt: skip
                for step in range(6):
                    trial.step(8)
                    both.wait(HANGS_SEC)
                    if step % 2:
                        trial.evaluate({"accuracy": 0.1 * step}, epoch=step // 2 + 1)
        except BaseException as error:
            errors.append(error)
            raise

    both = threading.Barrier(2)
    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_SEC)
    assert not errors
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 2
    for folder in folders:
        result = run_folder.read_result(folder)
        assert result is not None
        assert result.status == "finished"
        assert result.metrics["target_reached"] == 1
        keys = [event.key for event in journal.events(folder / run_folder.JOURNAL)]
        assert keys.count("eval_accuracy") == 3


def test_two_trainers_at_once_in_one_process_are_two_runs(tmp_path: Path) -> None:
    """The second fits within a step of the first, as one that searches for a value does."""

    class Outer(own_script.Line):
        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor | None:
            if self.global_step == 2 and not self.trained:
                self.trained = True
                with torch.enable_grad():
                    inner = own_script.trainer(trial(tmp_path / "inner"), max_epochs=1)
                    inner.fit(own_script.Line(), *own_script.loaders())
            return super().training_step(batch, batch_idx)

    module = Outer()
    module.trained = False  # type: ignore[assignment]
    own_script.trainer(trial(tmp_path / "outer"), max_epochs=2).fit(module, *own_script.loaders())
    for name, num_epochs in (("outer", 2), ("inner", 1)):
        (folder,) = (tmp_path / name).iterdir()
        result = run_folder.read_result(folder)
        assert result is not None
        assert (result.status, result.metrics["epochs/trained"]) == ("finished", num_epochs)


def trial(runs_dir: Path) -> TimeTrial:
    return TimeTrial(runs_dir=str(runs_dir), offline=True, system_metrics_interval_sec=0)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that nobody can write to, root neither."""
    path = tmp_path / "read-only"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_folder_that_is_read_only_is_refused_before_the_training(read_only: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"runs_dir=.*no access to .*its file system is read-only. Next: give a folder"
    ):
        own_script.trainer(trial(read_only), max_epochs=1).fit(own_script.Line(), *own_script.loaders())
    with (
        pytest.raises(ConfigError, match="no access to"),
        time_trial(runs_dir=str(read_only), offline=True, device="cpu"),
    ):
        raise AssertionError("the training began")


@pytest.mark.service
def test_a_launch_into_a_folder_that_is_read_only_is_refused(read_only: Path) -> None:
    from tests.support.commands import launch

    for where in ({"runs_dir": read_only}, {"runs_dir": read_only / "deeper"}):
        options = [f"{key}={value}" for key, value in where.items()]
        done = launch(read_only.parent, "gpus=0", "tracking.offline=true", *options)
        assert done.code == 2, done.output
        assert "refused: runs_dir=" in done.output
        assert "Traceback" not in done.output
