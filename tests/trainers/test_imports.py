"""Lightning without its slow optional imports."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from trainers.imports import SLOW, as_if_missing
with as_if_missing(*SLOW):
    import trainers.train
assert not set(SLOW) & set(sys.modules), set(SLOW) & set(sys.modules)
import matplotlib, scipy.signal, torchmetrics
from trainers import vgg
torchmetrics.MeanMetric().update(1.0)
print("well")
"""


def test_they_are_left_out_and_there_again_afterwards() -> None:
    answer = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert answer.stdout == "well\n", answer.stderr
