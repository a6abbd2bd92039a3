"""MiniGo as a workload. An epoch is a generation: games, training on the newest positions, and a gate."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from conf.schema import ConfigError
from tracking.machine.environment import available_bytes
from trainers.data.selfplay import PlayView, SelfPlayData
from trainers.models.minigo import elo
from trainers.models.minigo.arena import Arena, Place, rank, sections_of, world_size
from trainers.models.minigo.frozen import digest_of, load_frozen
from trainers.models.minigo.network import GoNet, Predictor, Sizes, losses, training_loss
from trainers.models.minigo.play_options import (
    Options,
    check_counts,
    check_rules,
    check_schedule,
    checked_opponents,
    settings,
)
from trainers.models.minigo.positions import Window
from trainers.models.minigo.pro_moves import ProMoves, pro_games
from trainers.models.minigo.self_play import Customs
from trainers.ops.batchnorm import average_running_statistics, renew_running_statistics
from trainers.ops.compiling import compiled
from trainers.ops.distributed_sum import DistributedSum
from trainers.ops.go import Rules
from trainers.workload import Batch, TrialModule, Workload

RENEWAL, FIT = 201, 202  # keys of random numbers, beside the data's DRAWN
RENEWAL_BATCHES = 8
DTYPES = {"bf16": torch.bfloat16, "16": torch.float16}  # by prefix of Lightning's precision


class MiniGo(TrialModule):
    """Trains by SGD with momentum for up to `generations`; the rate falls to a tenth at each of `decay_steps`.

    `net` is trained; `champion` plays the games and is evaluated. Raises ConfigError for an invalid option.
    """

    def __init__(
        self, data: SelfPlayData, learning_rate: float, weight_decay: float, generations: int,
        board: int = 9, komi: float = 7.5, filters: int = 32, blocks: int = 9, dense: int = 64,
        games: int = 2000, games_at_once: int = 2048, readouts: int = 200, leaves: int = 8, resign: float = -0.9,
        never_resign: float = 0.05, temperature_moves: int = 7, examples: int = 100_000, window: int = 2_000_000,
        momentum: float = 0.9, decay_steps: Sequence[int] = (), gate_games: int = 100, gate: float = 0.55,
        match_readouts: int = 200, match_leaves: int = 8, match_temperature_moves: int = 2, pro_moves: bool = True,
        opponents: Sequence[str] = (), eval_games: int = 100, frozen: str | None = None,
        frozen_digest: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_counts(
            generations=generations, filters=filters, blocks=blocks, dense=dense, examples=examples, readouts=readouts,
            leaves=leaves, match_readouts=match_readouts, match_leaves=match_leaves,
        )  # fmt: skip
        check_schedule(momentum, decay_steps)
        check_rules(board, komi)
        self.max_epochs, self.learning_rate, self.weight_decay = generations, learning_rate, weight_decay
        self.momentum, self.decay_steps = momentum, tuple(decay_steps)
        self.options = Options(
            Rules(board, komi), Customs(resign, never_resign, temperature_moves, match_temperature_moves),
            games, games_at_once, settings("", readouts, leaves, noise=True),
            settings("match_", match_readouts, match_leaves), gate_games, gate,
            checked_opponents(opponents, frozen, frozen_digest), eval_games, torch.initial_seed() % 2**63, window,
        )  # fmt: skip
        self.net = GoNet(Sizes(board, filters, blocks, dense)).to(memory_format=torch.channels_last)
        self.champion = copy.deepcopy(self.net).requires_grad_(False)
        # A network in a list is no submodule: it is neither saved nor trained.
        self._frozen = [load_frozen(frozen, frozen_digest, self.net.sizes)] if frozen else []
        self._pro_moves = ProMoves(self.options.rules, pro_games(self.options.rules)) if pro_moves else None
        self._window = Window(self.options.rules, max(1, window // world_size()))
        num_cases = sum(sections_of(self.options, self._pro_moves).values())
        self.view = PlayView(board, self._window, examples, num_cases, self._digests)
        self._training_loss, self._compiles = training_loss, False
        self._arena: Arena | None = None
        self._sums, self._evaluated = DistributedSum(), False
        self.history = elo.History()
        self._restored: dict[str, torch.Tensor] = {}
        self._trains_since = time.monotonic()

    def check_batch(self, batch_size: int) -> None:
        """Raise ConfigError if the trees and the window do not fit into the free memory."""
        on_gpu = torch.cuda.is_initialized()
        available = torch.cuda.mem_get_info()[0] if on_gpu else available_bytes() // world_size()
        pro_search = self._pro_moves.search_bytes(world_size()) if self._pro_moves else 0
        self.options.check_memory(available, world_size(), pro_search)

    def check_targets(self, metrics: Collection[str]) -> None:
        """Raise ConfigError for a target that the evaluation does not measure."""
        measured = sections_of(self.options, self._pro_moves)
        for name in sorted({*metrics} - {*measured}):
            advice = "pro_moves: true" if name == "pro_moves" else f"opponents: [{name.removeprefix('wins_')}]"
            raise ConfigError(
                f"model.targets.selfplay.{name}: is not measured by the evaluation. Next: give model.hparams with"
                f" {advice}"
            )

    def compile_hot_path(self) -> None:
        self._compiles = True
        self._training_loss = compiled(training_loss, self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.net.parameters(), lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay,
            fused=True,
        )  # fmt: skip

    def arena(self) -> Arena:
        if self._arena is None:
            precision = str(self._trainer.precision) if self._trainer else ""
            dtype = next((DTYPES[name] for name in DTYPES if precision.startswith(name)), torch.float32)
            place = Place(rank(), world_size(), self.device, dtype, self._compiles)
            frozen = self._frozen[0].to(self.device) if self._frozen else None
            self._arena = Arena(self.options, place, self.champion, self.net, frozen, self._pro_moves)
        return self._arena

    def on_train_epoch_start(self) -> None:
        """Play a generation's games, and keep their positions in the window."""
        if self._restored:
            self._window.restore(self._restored, self.device)
            self._restored = {}
        began = time.monotonic()
        played = self.arena().self_play(self.current_epoch)
        self._window.add(played.positions)
        counted = (played.games, played.moves, played.evaluations, played.black_wins, played.resigned)
        games, moves, evaluations, black_wins, resigned = self._totals(*counted)
        self._trains_since = time.monotonic()
        seconds = self._trains_since - began
        for name, number in {"games": games, "moves": moves, "evaluations": evaluations}.items():
            self.log(f"selfplay/{name}_per_sec", number / seconds)
        for name, share in {"moves_per_game": moves, "black_wins": black_wins, "resigned": resigned}.items():
            self.log(f"selfplay/{name}", share / games)
        self.log("selfplay/sec", seconds)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        step = self.current_epoch * int(self.trainer.num_training_batches) + batch_idx
        rate = self.learning_rate / 10 ** sum(step >= decay for decay in self.decay_steps)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        if "cases" in batch and self._arena is None:  # the warm-up's example, even if nothing will be evaluated
            self.arena().warm_up(evaluates=False)
        names = ("planes", "policies", "outcomes", "weights")
        return self._training_loss(self.net, *(batch[name] for name in names))

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if batch_idx + 1 == self.trainer.num_training_batches:
            self._renew_statistics(len(batch["planes"]))
            average_running_statistics(self)
            self._log_fit(len(batch["planes"]))
            self._gate()

    def _renew_statistics(self, number: int) -> None:
        """Normalise by the statistics of the trained weights: a generation may have too few steps for a moving average.

        The batches have `number` positions each.
        """
        keys = ((self.options.seed, self.current_epoch, RENEWAL, rank(), index) for index in range(RENEWAL_BATCHES))
        renew_running_statistics(self.net, (self._window.sample(number, *key)["planes"] for key in keys))

    @torch.no_grad()
    def _log_fit(self, number: int) -> None:
        """Log how well the network that plays fits `number` positions of the window, for policy and value apart."""
        drawn = self._window.sample(number, self.options.seed, self.current_epoch, FIT, rank())
        names = ("planes", "policies", "outcomes")
        cross_entropy, squared_error = losses(self.net.eval(), *(drawn[name] for name in names))
        self.net.train()
        self.log("training/cross_entropy", cross_entropy.mean(), on_step=False, on_epoch=True)
        self.log("training/squared_error", squared_error.mean(), on_step=False, on_epoch=True)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if "planes" in batch:  # the warm-up's example
            self.arena().warm_up(evaluates=True)
        else:
            self._sums.add(self.arena().evaluate(batch["cases"], self.current_epoch))
            self._evaluated = True

    def _gate(self) -> None:
        """Let the trained network play against the champion, and replace it if it wins often enough."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # Once a generation, to time the training.
        began = time.monotonic()
        trained = began - self._trains_since
        wins = self.arena().gate(self.current_epoch)
        (number,) = self._totals(int(wins.sum()))
        promoted = number / self.options.gate_games >= self.options.gate  # Not a product: 0.55 * 100 exceeds 55.
        if promoted:
            self.champion.load_state_dict(self.net.state_dict())
        self.history.add(int(number), self.options.gate_games, promoted)
        figures = {
            "training/sec": trained,
            "gate/win_rate": number / self.options.gate_games,
            "gate/elo": self.history.rows[-1].elo,
            "gate/sec": time.monotonic() - began,
        }
        for name, value in figures.items():
            self.log(name, value, on_step=False, on_epoch=True)

    def metrics(self) -> dict[str, float]:
        if not self._evaluated:
            return {}
        self._evaluated, sums = False, self._sums.reduce()
        names = sections_of(self.options, self._pro_moves)
        return {name: right / number for name, right, number in zip(names, sums[::2], sums[1::2], strict=True)}

    def _totals(self, *numbers: int) -> list[float]:
        """Return the sums over processes. A collective call."""
        sums = DistributedSum()
        sums.add(torch.tensor(numbers, dtype=torch.float64, device=self.device))
        return sums.reduce()

    def flops_per_sample(self) -> float:
        """Return 0: the rate of positions includes self-play, so FLOP/s of the training alone would mean nothing."""
        return 0.0

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        return Predictor(self.champion), batch["planes"]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add each process's positions, and the matches so far. A collective call."""
        content = self._window.content()
        windows: list[Any] = [content]
        if world_size() > 1:
            windows = [None] * world_size()
            dist.gather_object(content, windows if rank() == 0 else None)
        checkpoint["windows"] = windows
        checkpoint["matches"] = [list(astuple(row)) for row in self.history.rows]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "windows" in checkpoint:  # A model.pt has no windows.
            self._restored = checkpoint["windows"][rank()]
            self.history.rows = [elo.Gated(*row) for row in checkpoint["matches"]]

    def _digests(self) -> dict[str, str]:
        """Return the tags that identify the frozen network and the current champion."""
        frozen = {"data.frozen_digest": digest_of(*self._frozen)} if self._frozen else {}
        return frozen | {"champion_digest": digest_of(self.champion)}

    def write_report(self, run_dir: Path) -> None:
        """Write and plot Elo against generation."""
        if self.history.rows:
            elo.write_csv(self.history.rows, run_dir / "elo.csv")
            elo.plot(self.history.rows, run_dir / "elo.png")


WORKLOAD = Workload(module=MiniGo, data={"selfplay": SelfPlayData}, unit="positions")
