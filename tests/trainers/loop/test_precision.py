"""A precision takes effect: seen in the dtype and the value of a matrix product, not in a flag."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.plugins import MixedPrecision
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from conf.schema import PrecisionConfig
from tracking.request.checks import PRODUCTS
from tracking.request.stored_config import from_dict
from trainers.loop import precision

CONF = Path(__file__).resolve().parents[3] / "conf/precision"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def config(name: str) -> PrecisionConfig:
    return from_dict(PrecisionConfig, yaml.safe_load((CONF / f"{name}.yaml").read_text()))


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    tag = torch.compiler.config.cache_key_tag
    yield
    torch.compiler.config.cache_key_tag = tag
    os.environ.pop("TORCH_COMPILE_CACHE_KEY_TAG", None)
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn


def observed(name: str, device: str) -> str:
    chosen = config(name)
    precision.apply(chosen)
    accelerator = "gpu" if device == "cuda" else "cpu"
    trainer = pl.Trainer(accelerator=accelerator, devices=1, precision=chosen.trainer, barebones=True)  # type: ignore[arg-type]
    precision.check_steps(trainer, chosen, torch.device(device))
    with trainer.precision_plugin.train_step_context():
        return precision.observe(torch.device(device))


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_on_a_cpu(name: str) -> None:
    assert observed(name, "cpu") == name


@pytest.mark.parametrize("name", ["32-true", "bf16-mixed", "bf16-true"])
def test_the_launcher_knows_what_the_loops_precisions_compute_in(name: str) -> None:
    trainer = pl.Trainer(accelerator="cpu", devices=1, precision=name, barebones=True)  # type: ignore[arg-type]
    with trainer.precision_plugin.train_step_context():
        assert precision.observe(torch.device("cpu")) == PRODUCTS[name][0]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
def test_on_a_gpu(name: str) -> None:
    assert observed(name, "cuda") == name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("name", "kept"), [("fp32", True), ("tf32", False)])
def test_convolutions_round_to_tf32_where_it_is_asked_for(name: str, kept: bool) -> None:
    precision.apply(config(name))
    value = 1 + 2.0**-12  # needs 12 bits of mantissa; tf32 has 10
    images = torch.full((8, 64, 16, 16), value, device="cuda")
    weight = torch.zeros(64, 64, 3, 3, device="cuda")
    weight[:, 0, 1, 1] = 1.0
    result = torch.nn.functional.conv2d(images, weight, padding=1)
    assert bool((result == value).all()) == kept


def compiled_steps(name: str, device: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.dtype, int]:
    """The dtype that a compiled product of fp32 runs in, and how many of its steps came out of the cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache / "triton"))
    torch._dynamo.reset()  # A new process begins so.
    counters.clear()
    chosen = config(name)
    precision.apply(chosen)
    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        precision=chosen.trainer,
        barebones=True,  # type: ignore[arg-type]
    )
    matrix = torch.ones(8, 8, device=device)
    with trainer.precision_plugin.train_step_context():
        product = torch.compile(torch.matmul)(matrix, matrix)
    return product.dtype, counters["aot_autograd"]["autograd_cache_hit"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # The compiler's own imports warn.
@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("cpu", ["fp32", "tf32", "fp32"]),  # nothing but the name tells these two apart on a CPU
        pytest.param("cuda", ["bf16", "fp16", "bf16"], marks=[pytest.mark.gpu, needs_gpu]),
    ],
)
def test_a_compiled_step_is_not_taken_over_from_another_precision(
    device: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [compiled_steps(name, device, tmp_path, monkeypatch) for name in names]
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    assert [dtype for dtype, _ in steps] == [dtypes.get(name, torch.float32) for name in names]
    assert [hits for _, hits in steps] == [0, 0, 1]  # the cache works: the third finds the first


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_compilers_processes_keep_their_measurements_under_the_precisions_name() -> None:
    """Where the tags differ, kernels are tuned again at every start: 7 s of Mask R-CNN's on an H200."""
    script = """
import yaml, torch
from conf.schema import PrecisionConfig
from tracking.request.checks import PRODUCTS
from tracking.request.stored_config import from_dict
from trainers.loop import precision
precision.apply(from_dict(PrecisionConfig, yaml.safe_load(open("conf/precision/bf16.yaml"))))
from torch._inductor.async_compile import AsyncCompile
if __name__ == "__main__":
    asked = AsyncCompile.process_pool().submit(eval, "__import__('torch').compiler.config.cache_key_tag")
    print(torch.compiler.config.cache_key_tag, asked.result())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CONF.parents[1], capture_output=True, text=True)
    assert done.stdout.split() == ["bf16", "bf16"], done.stderr


def test_a_precision_that_did_not_take_effect_is_noticed() -> None:
    trainer = pl.Trainer(accelerator="cpu", devices=1, barebones=True)
    with pytest.raises(AssertionError, match="precision=bf16: matrix products run in fp32"):
        precision.check_steps(trainer, config("bf16"), torch.device("cpu"))


class Overflows(pl.LightningModule):
    """One weight, whose gradient is infinite at the first step and 1 at the two that follow."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.weight = fused, torch.nn.Parameter(torch.ones(4))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, fused=self.fused)

    def on_train_start(self) -> None:
        precision.start_momentum(self.trainer)

    def training_step(self, factor: float, batch_idx: int) -> torch.Tensor:
        return (self.weight * factor).sum()


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:.*num_workers")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])])
def test_a_fused_sgd_whose_first_step_is_skipped_has_no_momentum_from_it(device: str) -> None:
    weights = []
    torch.use_deterministic_algorithms(True)  # Uninitialised memory is then NaN instead of old values.
    try:
        for fused in (False, True):
            module, scaler = Overflows(fused), torch.amp.GradScaler(device, init_scale=4.0)
            trainer = pl.Trainer(
                accelerator="gpu" if device == "cuda" else "cpu", devices=1, max_epochs=1, barebones=True,
                plugins=[MixedPrecision("16-mixed", device, scaler)],
            )  # fmt: skip
            trainer.fit(module, DataLoader([float("inf"), 1.0, 1.0], batch_size=None))  # type: ignore[arg-type]
            weights.append(module.weight.detach().cpu())
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(weights[0], weights[1])
    assert torch.allclose(weights[1], torch.full((4,), 1 - 0.1 - 0.19))
