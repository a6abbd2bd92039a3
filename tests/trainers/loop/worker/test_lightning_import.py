"""Lightning without its slow optional imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.composing import composed
from tracking.jobs.plan import run_setup
from tracking.jobs.worker_command import command
from tracking.record import run_folder
from tracking.request import checks

pytestmark = pytest.mark.slow

CODE = """
import sys
from trainers.loop.worker.lightning_import import SLOW, as_if_missing
with as_if_missing(*SLOW):
    import trainers.loop.train
assert not set(SLOW) & set(sys.modules), set(SLOW) & set(sys.modules)
import matplotlib, scipy.signal, torchmetrics
from trainers.models import vgg
torchmetrics.MeanMetric().update(1.0)
print("well")
"""


@pytest.mark.exhaustive
def test_they_are_left_out_and_there_again_afterwards() -> None:
    answer = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=HANGS_SEC)
    assert answer.stdout == "well\n", answer.stderr


RESTART = """
import sys
from pathlib import Path

import pytest
from trainers.loop.worker import lightning_import, main
lightning_import.SLOW = ("torchmetrics",)  # stands for a package that something else here needs
sys.exit(main(Path(sys.argv[1])))
"""


@pytest.mark.exhaustive
def test_where_something_needs_them_the_worker_starts_again_with_them(tmp_path: Path) -> None:
    overrides = ["gpus=0", "max_epochs=1", "limit_train_batches=1", "batch_size=4"]
    config = checks.check_run(composed(overrides), [])
    with run_setup.make_folder(run_setup.run_name(config), tmp_path) as owner:
        folder = owner.folder
    run_setup.prepare(folder, run_setup.run_name(config), config, overrides, "sqlite:///unused.db")
    environment = command.worker_command(config, folder).env
    answer = subprocess.run(
        [sys.executable, "-c", RESTART, str(folder)], env=environment, capture_output=True, text=True, timeout=HANGS_SEC
    )
    assert answer.returncode == 0, answer.stderr
    result = run_folder.read_result(folder)
    assert result is not None
    assert result.status == "finished"
