"""Patches of Lightning and PyTorch have their effect, in trainings that observe their own steps.

The next version may drop a private name without notice, and setting it then does nothing. The code relies on these
private names and undocumented behaviours. Each has a test that fails when it changes:

    _TrainingEpochLoop._broadcast_sigterm_tensor     trainers.loop.train: a wait for the device before every step
    _TrainingEpochLoop.on_advance_end,
    Trainer._checkpoint_connector.dump_checkpoint,
    FitLoop.restarted_mid_epoch                      trainers.loop.saving: saving/test_step_checkpoint.py
    _TrainingEpochLoop._should_check_val_fx          trainers.loop.evaluation_times: test_evaluation.py
    trainer.profiler, Profiler.profile               trainers.loop.train: 46 contexts a step
    LightningModule._current_fx_name                 trainers.workload: 44 slow attributes a step
    DDPStrategy._setup_model                         trainers.loop.ddp: another stream, buffers sent at every step
    trainer.callbacks.append on a barebones Trainer  trainers.loop.train: saving/test_checkpoint.py
    Trainer._signal_connector                        trainers.loop.train: it waits for peers that are dead
    a loader's `sampler`, whose epoch is set         trainers.data: the order of the samples
    lightning_utilities' imports._version            trainers.loop.worker.lightning_import: its test
    torch._foreach_copy_                             trainers.loop.ddp: test_ddp.py
    torch._dynamo.config.recompile_limit             trainers.models.maskrcnn: tests/trainers/models/test_maskrcnn.py
    inductor's options                               trainers.ops.compiling
    torch.compiler.config.cache_key_tag, and its
    variable for the compiler's processes            trainers.loop.precision: test_precision.py
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT                   trainers.loop.worker
    dynamic_rendezvous.get_method_name               trainers.loop.worker: test_agent.py
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.profilers import Profiler
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from conf.schema import RunConfig
from tests.support.composing import composed
from tests.trainers import processes
from tests.trainers.loop.test_epochs import KINDS
from tracking.measure.training import EvaluationPlan, MeasuringCallback
from trainers.data.loading.types import Shard
from trainers.loop import ddp, train
from trainers.loop.worker import torchrun
from trainers.ops.compiling import compiled
from trainers.workload import TrialModule

STEPS, EPOCHS = 4, 2
CPU = torch.device("cpu")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")]


class Operations(TorchDispatchMode):
    """Counts what a step sends to other processes, and what it reads on the host, which would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name().partition(".")[0]
        if name.startswith("c10d::") or name == "aten::_local_scalar_dense":
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))


class Layer(TrialModule):
    """A layer and a buffer; it notes which hook it is told to be in."""

    def __init__(self) -> None:
        super().__init__()
        self.max_epochs = EPOCHS
        self.layer = nn.Linear(2, 1)
        self.register_buffer("seen", torch.zeros(1))
        self.hooks: set[tuple[str, str | None]] = set()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.hooks.add(("on_train_batch_start", self._current_fx_name))

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        self.hooks.add(("training_step", self._current_fx_name))
        return self.layer(batch["images"]).square().mean()  # type: ignore[no-any-return]


class Batches:
    """A loader that decides itself which process gets which samples."""

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([{"images": torch.ones(2, 2) * step, "num_samples": 2} for step in range(1, STEPS + 1)])


class Steps(pl.Callback):
    """Notes what happens from the end of each step to the end of the next one of its epoch."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.operations = Operations()
        self.steps: list[dict[str, int]] = []
        self.handlers: list[bool] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.handlers.append(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.handlers.append(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx > 0:
            self.steps.append(dict(self.counts + self.operations.counts))
        self.counts.clear()
        self.operations.counts.clear()


@contextmanager
def counted(steps: Steps) -> Iterator[None]:
    """Count attributes that go nn.Module's slow way, and profiling contexts of Lightning's own."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((nn.Module, "__setattr__"), (Profiler, "profile"), (train.NoProfiler, "profile")):
            original = getattr(owner, name)

            def noted(self: Any, *args: Any, owner: Any = owner, original: Any = original) -> Any:
                if owner is not nn.Module:
                    steps.counts[f"{owner.__name__}.profile"] += 1
                elif isinstance(self, Layer):
                    steps.counts[f"attribute {args[0]}"] += 1
                result = original(self, *args)
                assert owner is not train.NoProfiler or result is train.NoProfiler._nothing
                return result

            patch.setattr(owner, name, noted)
        with steps.operations:
            yield


def train_one(strategy: DDPStrategy) -> dict[str, Any]:
    """What one process of a training with our Trainer sees."""
    config = RunConfig(gpus=0, cpu_processes=2, log_every_n_steps=100)
    config.precision.trainer = "32-true"
    config.model.optimizer.lr = 0.1
    config.model.metrics = config.model.targets = {}
    module, steps = Layer(), Steps()
    callback = MeasuringCallback(config, CPU, None, lambda trainer: None, lambda trainer: None)
    plan = EvaluationPlan(len(Batches()), EPOCHS, 4.0)
    trainer = train.make_trainer(config, strategy, plan, callback, evaluates=False)
    trainer.callbacks[:0] = [steps]  # type: ignore[attr-defined]  # It looks at what MeasuringCallback finds.
    with counted(steps):
        trainer.fit(module, Batches())
    return {"steps": steps.steps, "hooks": module.hooks, "handlers": steps.handlers}


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    seen = {"after": train_one(ddp.AfterTheStep()), "overlapped": train_one(ddp.Overlapped())}
    torch.save(seen, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By how gradients leave, what the first of two processes sees of its training."""
    folder = tmp_path_factory.mktemp("training")
    processes.ranks(process, str(folder))
    return torch.load(folder / "0.pt")  # type: ignore[no-any-return]


@pytest.mark.parametrize("exchange", ["after", "overlapped"])
def test_a_step_sends_its_gradients_and_nothing_else_and_waits_for_nothing(
    seen: dict[str, dict[str, Any]], exchange: str
) -> None:
    """Lightning would ask the others whether to stop, and read the answer; DDP would send the buffer."""
    steps = seen[exchange]["steps"]
    assert len(steps) == EPOCHS * (STEPS - 1)
    for step in steps[1:]:  # before the second step DDP tells the others how it lays out its buckets anew
        assert {name: count for name, count in step.items() if "::" in name} == {"c10d::allreduce_": 1}


def test_a_step_enters_no_profiling_context_of_lightnings(seen: dict[str, dict[str, Any]]) -> None:
    for step in seen["after"]["steps"]:
        assert step["NoProfiler.profile"] > 20
        assert "Profiler.profile" not in step


def test_a_step_sets_no_attribute_the_slow_way(seen: dict[str, dict[str, Any]]) -> None:
    for step in seen["after"]["steps"]:
        assert not [name for name in step if name.startswith("attribute ")]


def test_a_hook_is_still_told_which_it_is(seen: dict[str, dict[str, Any]]) -> None:
    """A strategy's step has the name of the module's."""
    assert seen["after"]["hooks"] == {(name, name) for name in ("on_train_batch_start", "training_step")}


def test_sigterm_ends_a_training_although_lightning_would_take_it(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["after"]["handlers"] == [True] * (1 + EPOCHS)


class Looking(TrialModule):
    """Keeps the images of its batches, by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.images: dict[int, list[torch.Tensor]] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        self.images.setdefault(self.current_epoch, []).append(batch["images"].clone())
        return self.weight.square()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "generated" not in kind])
@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_lightning_tells_every_loader_its_epoch(tmp_path: Path, kind: str, own_cache: None) -> None:
    data, module = KINDS[kind](tmp_path), Looking()
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=2, limit_train_batches=2, barebones=True)
    trainer.fit(module, data.train_loader(2, 5, Shard(0, 1, CPU)))
    for epoch in range(2):
        loader = KINDS[kind](tmp_path).train_loader(2, 5, Shard(0, 1, CPU))
        loader.set_epoch(epoch)
        expected = [batch["images"].clone() for batch, _ in zip(loader, range(2), strict=False)]
        torch.testing.assert_close(module.images[epoch], expected, rtol=0, atol=0)


@pytest.mark.parametrize("autotune", [False, True])
def test_the_compiler_knows_the_options_it_is_given_on_a_gpu(autotune: bool) -> None:
    """It refuses options that it does not know before anything is compiled."""
    assert callable(compiled(torch.relu, torch.device("cuda"), autotune))
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(torch.relu, options={"triton.no_such_option": True})


def test_torchrun_waits_as_long_for_ranks_that_it_ends_as_its_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    config = composed(["gpus=0"])
    assert torchrun.launch_config(config, Path("run")).shutdown_timeout == 7
