"""A training tells each loader its epoch: two epochs of a fit have two orders, also behind a resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.trainers.loop import test_positions
from tests.trainers.processes import CPU
from trainers.data.loading.position import with_epochs
from trainers.data.loading.types import Shard
from trainers.loop import train

IGNORED = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:.*have no `val_dataloader`",
    "ignore:You're resuming from a checkpoint that ended before the epoch",
    "ignore:.*Trying to infer the `batch_size`",
)
pytestmark = [pytest.mark.filterwarnings(words) for words in IGNORED]
DRAWN = [kind for kind in test_positions.KINDS if "generated" not in kind]  # Generated batches are the same ones.


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Seen(pl.LightningModule):
    """Keeps the batches of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.epochs: dict[int, list[Any]] = {}
        self.evaluations: dict[int, list[Any]] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.epochs.setdefault(self.trainer.current_epoch, []).append(batch)
        return self.weight.square()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluations.setdefault(self.trainer.current_epoch, []).append(batch)


def fitted(
    loader: Any, epochs: int, held_out: Any = None, checkpoint: Path | None = None, callbacks: Any = None,
) -> Seen:  # fmt: skip
    module = Seen()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=epochs, callbacks=callbacks, use_distributed_sampler=False,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, with_epochs(loader), with_epochs(held_out), ckpt_path=checkpoint, weights_only=True)
    return module


def of_kind(kind: str, folder: Path) -> Any:
    make, batch_size = test_positions.KINDS[kind]
    return make(folder).train_loader(batch_size, 5, Shard(0, 1, CPU))


def same(batches: list[Any], others: list[Any]) -> bool:
    return len(batches) == len(others) and all(map(test_positions.same, batches, others))


@pytest.mark.parametrize("kind", DRAWN)
def test_a_fit_sees_the_batches_of_each_epoch(tmp_path: Path, kind: str) -> None:
    loader = of_kind(kind, tmp_path)
    seen = fitted(loader, epochs=2).epochs
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        assert same(seen[epoch], list(loader)), f"epoch {epoch}"
    assert not same(seen[0], seen[1])


def test_ratings_have_another_order_and_other_negatives_in_each_epoch(tmp_path: Path) -> None:
    seen = fitted(of_kind("ratings", tmp_path), epochs=2).epochs
    positives, negatives = [], []
    for epoch in (0, 1):
        users = torch.cat([batch["users"][batch["weights"] > 0] for batch in seen[epoch]])
        items = torch.cat([batch["items"][batch["weights"] > 0] for batch in seen[epoch]])
        positives.append(list(zip(users.tolist(), items[:, 0].tolist(), strict=True)))
        drawn = zip(positives[-1], items[:, 1:].tolist(), strict=True)
        negatives.append({pair: tuple(row) for pair, row in drawn})
    assert positives[0] != positives[1]
    assert sorted(positives[0]) == sorted(positives[1])
    assert negatives[0] != negatives[1]


@pytest.mark.parametrize("kind", test_positions.KINDS)
def test_lightning_reaches_every_loader_of_ours_by_itself(tmp_path: Path, kind: str) -> None:
    loader = of_kind(kind, tmp_path)
    assert loader.sampler is loader
    assert with_epochs(loader) is loader


class Own:
    """A user's loader, after the protocol alone; it decides on an epoch's batches when its iterator is asked for."""

    def __init__(self) -> None:
        self.epoch, self.told = 0, []  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([{"num_samples": 1, "number": 10 * self.epoch + step} for step in range(4)])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.told.append(epoch)


@pytest.mark.parametrize("kind", test_positions.KINDS)
def test_its_evaluation_is_the_same_behind_each_epoch(tmp_path: Path, kind: str) -> None:
    make, batch_size = test_positions.KINDS[kind]
    held_out = make(tmp_path).eval_loader(batch_size, Shard(0, 1, CPU))
    if held_out is None:
        return
    evaluated = fitted(Own(), 2, held_out).evaluations
    assert evaluated[0]
    assert same(evaluated[0], evaluated[1])


def numbers(seen: Seen) -> dict[int, list[int]]:
    return {epoch: [batch["number"] for batch in batches] for epoch, batches in seen.epochs.items()}


def test_a_users_loader_is_told_before_its_iterator_is_asked_for() -> None:
    loader, held_out = Own(), Own()
    assert numbers(fitted(loader, 3, held_out)) == {
        epoch: [10 * epoch + step for step in range(4)] for epoch in (0, 1, 2)
    }
    assert loader.told == held_out.told == [0, 1, 2]


class Saves(pl.Callback):
    """A checkpoint behind the first epoch, or behind so many steps."""

    def __init__(self, path: Path, step: int | None) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.step is None and trainer.current_epoch == 0:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize(("step", "left"), [(None, 4), (6, 2)])
def test_it_is_told_when_a_run_is_resumed(tmp_path: Path, step: int | None, left: int) -> None:
    """The loader has no `begin_behind`, which would leave out the batches before the checkpoint."""
    path = tmp_path / "kept.ckpt"
    fitted(Own(), epochs=3, callbacks=[Saves(path, step)])
    seen = numbers(fitted(Own(), epochs=3, checkpoint=path))
    assert set(seen) == {1, 2}
    assert len(seen[1]) == left
    assert all(number // 10 == epoch for epoch, of_epoch in seen.items() for number in of_epoch)


def test_a_loaders_own_sampler_still_hears_of_it() -> None:
    class WithSampler(Own):
        def __init__(self) -> None:
            super().__init__()
            self.sampler = Own()

    loader = WithSampler()
    fitted(loader, epochs=2)
    assert loader.told == loader.sampler.told == [0, 1]


def test_what_has_no_epochs_is_left_as_it_is() -> None:
    batches = [1, 2]
    assert with_epochs(batches) is batches
    assert with_epochs(None) is None


def test_a_run_hands_its_loaders_on_so() -> None:
    assert train.with_epochs is with_epochs
