"""Our training steps of the translators beside PyTorch's own layers, in turns on one device.

    python benchmarks/peers/translation_steps.py --models transformer gnmt --precision bf16 --rounds 3 --out peers.csv
    python benchmarks/peers/translation_steps.py --tiny --steps 2 --rounds 1    # whether it runs, on a CPU

All get the same generated sentences, of about WMT's lengths, and as much room for tokens; sizes are the YAML's.
Transformer-big's peer is nn.Transformer with one embedding and the same loss, fed batches of about one length;
GNMT's is a stand-in of nn.LSTM alone: the same LSTMs, embedding and classifier, but PyTorch's dot-product attention.
Peers are timed as they come and compiled, with fused Adam; Lightning is around nothing.

A row is a variant and round: mean milliseconds a step, and tokens a second of target and both languages, without
padding. A round goes through all variants, every other one backwards, so that a linear drift cancels.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.peers.torchvision_steps import steps_ms
from benchmarks.steps.run_alone import AUTOCAST, composed
from trainers.data.text import PAD, TextView, synthetic
from trainers.data.types import Shard
from trainers.loop import precision as precisions
from trainers.loop.build import make_module
from trainers.ops.compiling import raise_recompile_limit
from trainers.workload import Batch, load_workload

TINY = {
    "transformer": {"layers": 1, "width": 32, "hidden": 64, "heads": 2},
    "gnmt": {"layers": 2, "width": 32},
}
NUM_BATCHES, WARMUP = 8, 3


class TorchTransformer(nn.Module):
    """nn.Transformer with one embedding."""

    def __init__(self, num_tokens: int, layers: int, width: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, width)
        self.body = nn.Transformer(width, heads, layers, layers, hidden, dropout, batch_first=True, norm_first=True)

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        hidden = source == PAD
        causal = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool, device=inputs.device).triu(1)
        x = self.body(
            self.embedding(source), self.embedding(inputs), tgt_mask=causal, src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden, tgt_is_causal=True,
        )  # fmt: skip
        return F.linear(x, self.embedding.weight)


class LstmStandIn(nn.Module):
    """LSTMs of GNMT's sizes, with dot-product attention between them."""

    def __init__(self, num_tokens: int, layers: int, width: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, width)
        self.both = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.encoder = nn.LSTM(2 * width, width, layers - 1, batch_first=True, dropout=dropout)
        self.first = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(2 * width, width, layers - 1, batch_first=True, dropout=dropout)
        self.classifier = nn.Linear(width, num_tokens)

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.both(self.embedding(source))[0])[0]
        x = self.first(self.embedding(inputs))[0]
        seen = F.scaled_dot_product_attention(x, memory, memory, attn_mask=(source != PAD)[:, None, :])
        logits: torch.Tensor = self.classifier(self.decoder(torch.cat((x, seen), dim=2))[0])
        return logits


class Variant:
    """A step that can be repeated, and the tokens of its batches, in turns."""

    def __init__(self, batches: list[Batch], loss: Callable[[Batch], torch.Tensor], optimizer: Any, clip: Any) -> None:
        self._turn = cycle(batches)
        self._loss, self._optimizer, self._clip = loss, optimizer, clip
        self.source, self.target = (
            sum(batch["num_tokens"][side] for batch in batches) / len(batches) for side in (0, 1)
        )

    def __call__(self) -> None:
        self._optimizer.zero_grad()
        self._loss(next(self._turn)).backward()
        if self._clip is not None:
            nn.utils.clip_grad_norm_(*self._clip)
        self._optimizer.step()


def variants(model: str, asked: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Variant]]:
    overrides = [f"model={model}", "dataset=synthetic", f"precision={asked.precision}", "gpus=0"]
    config = composed(overrides)
    config.model.hparams |= TINY[model] if asked.tiny else {}
    hparams, data = config.model.hparams, synthetic(2_000 if asked.tiny else asked.pairs)
    batch_size = asked.batch_size or (512 if asked.tiny else config.model.batch_size)
    module: Any = make_module(load_workload(config), data, config).to(device)

    def batches(view: TextView) -> list[Batch]:
        return list(islice(data.viewed(view).train_loader(batch_size, 1, Shard(0, 1, device)), NUM_BATCHES))

    def within(loss: Callable[[Batch], torch.Tensor]) -> Callable[[Batch], torch.Tensor]:
        def cast(batch: Batch) -> torch.Tensor:
            with torch.autocast(device.type, AUTOCAST.get(asked.precision), enabled=asked.precision in AUTOCAST):
                return loss(batch)

        return cast

    clip = (list(module.parameters()), hparams["clip_norm"]) if "clip_norm" in hparams else None
    if asked.compile:
        module.compile_hot_path()
    ours = within(lambda batch: module.training_step(batch, 0))
    yield "ours", Variant(batches(module.view), ours, module.configure_optimizers(), clip)
    for name in ("torch", "torch, compiled") if asked.compile else ("torch",):
        sizes = {key: hparams[key] for key in ("layers", "width", "hidden", "heads", "dropout") if key in hparams}
        kind: Any = TorchTransformer if model == "transformer" else LstmStandIn
        network = kind(data.num_tokens, **sizes).to(device)
        called = torch.compile(network, dynamic=True) if "compiled" in name else network

        def loss(batch: Batch, called: Any = called) -> torch.Tensor:
            logits = called(batch["source"], batch["inputs"]).flatten(0, 1).float()
            losses = F.cross_entropy(logits, batch["labels"].flatten(), reduction="none", label_smoothing=0.1)
            return (losses * batch["weights"].flatten()).sum()

        adam = torch.optim.Adam(network.parameters(), 1e-5, fused=True)
        clipped = None if clip is None else (list(network.parameters()), clip[1])
        yield name, Variant(batches(TextView(module.view.max_length)), within(loss), adam, clipped)


def measured(model: str, asked: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    ready = dict(variants(model, asked, device))
    for step in ready.values():
        for _ in range(max(WARMUP, 2 * NUM_BATCHES if asked.compile else 0)):
            step()
    rows = []
    for number in range(asked.rounds):
        for name in list(ready) if number % 2 == 0 else reversed(ready):
            milliseconds = steps_ms(ready[name], asked.steps, device)
            mean, step = sum(milliseconds) / len(milliseconds), ready[name]
            rates = {"target_tokens_per_sec": step.target, "tokens_per_sec": step.source + step.target}
            row = {"model": model, "variant": name, "precision": asked.precision, "round": number, "step_ms": mean}
            rows.append(row | {key: round(1e3 * tokens / mean) for key, tokens in rates.items()})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of translators beside PyTorch's own layers.")
    parser.add_argument("--models", nargs="+", default=["transformer", "gnmt"], choices=["transformer", "gnmt"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"])
    parser.add_argument("--batch-size", type=int, help="room for tokens; default: the model's")
    parser.add_argument("--pairs", type=int, default=200_000, help="generated sentences to take batches of")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="small networks, to see whether it runs")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    asked.compile = asked.compile and device.type == "cuda"
    raise_recompile_limit(128)
    precisions.apply(composed(["model=transformer", f"precision={asked.precision}", "gpus=0"]).precision)
    rows = [row for model in asked.models for row in measured(model, asked, device)]
    if asked.out:
        with asked.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
