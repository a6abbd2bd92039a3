"""Programs of other frameworks, as their users write them. They are skipped where the group `frameworks` of
pyproject.toml is not installed; CI installs it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC, environment, events, launch
from tracking.record import run_folder

pytestmark = pytest.mark.slow
TRANSFORMERS = """
import sys
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(int(sys.argv[1]))
words = torch.randint(2, 20, (240, 12))
rows = [{"input_ids": row, "labels": (row < 11).sum() // 7} for row in words]
config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=20, eval_strategy="steps",
                              eval_steps=5, logging_steps=5, save_strategy="no", report_to=[], use_cpu=True)
Trainer(
    model=BertForSequenceClassification(config), args=arguments, train_dataset=rows[:200], eval_dataset=rows[200:],
    compute_metrics=lambda said: {"accuracy": float((said.predictions.argmax(-1) == said.label_ids).mean())},
).train()
"""
# A Lightning example of its own package (its demos), as a script of the package `lightning` with our two lines.
LIGHTNING = """
import lightning as L
import torch
from lightning.pytorch.demos.transformer import LightningTransformer
from torch.utils.data import DataLoader, TensorDataset

from timetrial import TimeTrial

class Text(LightningTransformer):
    def prepare_data(self):
        pass  # it would download its text

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_epoch=True)
        return loss

words = torch.randint(0, 20, (24, 9), generator=torch.Generator().manual_seed(0))
trial = TimeTrial(target={"loss": "<=9"}, offline=True, system_metrics_interval_sec=0)
trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, callbacks=[trial])
trainer.fit(Text(vocab_size=20), DataLoader(TensorDataset(words[:, :-1], words[:, 1:]), batch_size=4))
print("steps", trainer.global_step)
"""
JAX = """
import sys, time
import jax
import jax.numpy as jnp

x = jax.random.normal(jax.random.PRNGKey(int(sys.argv[1])), (600, 8))
y = x @ jnp.arange(8.0)
step = jax.jit(lambda w, x, y: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w))
w = step(jnp.zeros(8), x[:50], y[:50])
print("training on", jax.devices())
for epoch in range(1, 4):
    for start in range(0, 500, 50):
        w = step(w, x[start : start + 50], y[start : start + 50])
        time.sleep(0.1)
        print(f"epoch={epoch} seen={500 * (epoch - 1) + start + 50:,}")
    print(f"epoch={epoch} error {float(jnp.mean((x[500:] @ w - y[500:]) ** 2)):.6f} at {time.time():.3f}")
"""


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed: uv sync --group frameworks")


def options(metrics: str, epoch: str) -> list[str]:
    command = f"program.command={sys.executable} train.py {{seed}}"
    offline = ["gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0"]
    return ["model=program", command, f"+program.metrics={{{metrics}}}", f"program.epoch={epoch}", *offline]


@pytest.mark.exhaustive  # JAX shows a program's lines, tests/tracking/api/test_coming_from.py Hugging Face's Trainer
@needs("transformers")
@needs("accelerate")
def test_a_script_of_hugging_faces_trainer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRANSFORMERS)
    number = "'?([^',}]+)"
    declared = options(f'''eval/accuracy: "'eval_accuracy': {number}"''', f"'epoch': {number}")
    launched = launch(tmp_path, *declared, "target=0.3")
    assert launched.code == 0, launched.output
    printed = (launched.folder / run_folder.WORKER_LOG).read_text()
    shown = re.findall(f"'eval_accuracy': {number}.*?'epoch': {number}", printed)
    evaluated = [row.values for row in events(launched.folder, "eval_accuracy")]
    assert [(row["metrics"]["accuracy"], row["epoch_num"]) for row in evaluated] == [
        (float(accuracy), float(epoch)) for accuracy, epoch in shown
    ]
    assert [row["epoch_num"] for row in evaluated] == [0.5, 1, 1.5, 2]  # 10 batches of 20, each 5 steps
    assert launched.result["metrics"]["world_size"] == 1


@needs("lightning")
@pytest.mark.exhaustive  # tests/tracking/api/test_lightning_script.py has scripts of pytorch_lightning
def test_a_script_of_the_package_lightning_takes_the_callback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHTNING], cwd=tmp_path, env=environment(), text=True, timeout=HANGS_SEC,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "steps 6" in done.stdout  # the target is reached after the first of three epochs
    (folder,) = (tmp_path / "runs").iterdir()
    figures = run_folder.read_result(folder)
    assert figures is not None
    assert figures.metrics["epochs/to_accuracy"] == figures.metrics["epochs/trained"] == 1
    windows = [row.values["samples"] for row in events(folder, "throughput_window")]
    assert sum(windows) == 24


@pytest.mark.exhaustive
@needs("jax")
def test_a_program_of_jax(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JAX)
    declared = options(r'eval/error: "error (\S+)"', r"epoch=(\d+)")
    words = [r"program.samples=seen=(\S+)", "program.start=^training on", "target='<=1.0'"]
    launched = launch(tmp_path, *declared, *words)
    assert launched.code == 0, launched.output
    printed = (launched.folder / run_folder.WORKER_LOG).read_text()
    shown = [(float(error), float(at)) for error, at in re.findall(r"error (\S+) at (\S+)", printed)]
    first = next(index for index, (error, _) in enumerate(shown) if error <= 1)
    (began,) = events(launched.folder, "run_start")
    figures = launched.result["metrics"]
    assert figures["epochs/to_accuracy"] == first + 1
    reached = events(launched.folder, "eval_accuracy")[first]
    assert figures["time/to_accuracy_sec"] == pytest.approx(reached.clock_sec - began.clock_sec)
    assert reached.time_ms / 1e3 >= shown[first][1] - 0.002, "it was read before it was printed"
    # Each step of 50 samples sleeps 0.1 s; on a busy machine a line may be read later than the ones behind it.
    assert 0 < figures["throughput/samples_per_sec"] < 750
