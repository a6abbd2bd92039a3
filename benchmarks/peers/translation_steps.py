"""Rates of the translators' training steps, ours and of PyTorch's own layers, in turns on one device.

    python benchmarks/peers/translation_steps.py --models transformer --batch-sizes 13824 55296 --out transformer.csv
    python benchmarks/peers/translation_steps.py --models gnmt --batch-sizes 8192 98304 --out gnmt.csv
    python benchmarks/peers/translation_steps.py --tiny --steps 2 --rounds 1    # to check that it runs, on a CPU

All variants draw from the same generated sentences of about WMT's lengths, and have the same room for tokens. Sizes are
those of conf/. Our batches are made as in training, the peers' as fairseq makes them (NVIDIA's Transformer builds on
it): sorted by length, filled one after another. --steps batches of an epoch are timed, evenly spaced by length. Their
share of padding is printed.

Transformer-big's peer is nn.Transformer with one embedding and the same loss. GNMT's is a stand-in of nn.LSTM: the same
LSTMs, embedding and classifier, but PyTorch's dot-product attention, which is less work than GNMT's. Peers are timed as
they come and compiled, with fused Adam. Lightning is not used.

Rates count tokens without padding: the target's for the Transformer, both languages' for GNMT.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.peers import beside
from benchmarks.peers.turns import TooSlowError, time_limit
from benchmarks.steps.device_kernels import release, wait
from benchmarks.steps.run_alone import AUTOCAST, composed
from trainers.data.loading.types import Shard
from trainers.data.text import PAD, TextData, synthetic
from trainers.data.text.loader import Step, TrainLoader, batch
from trainers.data.text.shapes import ROWS
from trainers.loop import precision as precisions
from trainers.loop.build import make_module
from trainers.ops.compiling import raise_recompile_limit
from trainers.workload import Batch, load_workload

TINY = {
    "transformer": {"layers": 1, "width": 32, "hidden": 64, "heads": 2, "pack_length": 256},
    "gnmt": {"layers": 2, "width": 32},
}
NAMES = {"transformer": "Transformer", "gnmt": "GNMT"}
UNITS = {"transformer": "target tokens/s", "gnmt": "tokens/s"}
PEERS = {"transformer": "nn.Transformer", "gnmt": "nn.LSTM and PyTorch's attention"}
COMPILED = "compiled"


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
        context = F.scaled_dot_product_attention(x, memory, memory, attn_mask=(source != PAD)[:, None, :])
        logits: torch.Tensor = self.classifier(self.decoder(torch.cat((x, context), dim=2))[0])
        return logits


@cache
def sentences(num: int) -> TextData:
    return synthetic(num)


def fairseq_steps(data: TextData, room: int) -> list[Step]:
    """An epoch of fairseq's batches: pairs by source length, then target length, cut where the room ends.

    Batches above eight rows have a multiple of eight (`--required-batch-size-multiple`).
    """
    source, target = (lengths[data.pairs] for lengths in data.train.lengths())
    order = np.lexsort((target, source))
    longer = np.maximum(source, target)[order]
    steps, first = [], 0
    while first < len(order):
        widest = np.maximum.accumulate(longer[first : first + room // int(longer[first])])
        rows = int((np.arange(1, len(widest) + 1) * widest <= room).sum())
        chosen = order[first : first + (rows if rows <= ROWS else rows // ROWS * ROWS)]
        width = (int(source[chosen].max()), int(target[chosen].max()))
        steps.append(Step(data.pairs[chosen], np.ones(len(chosen), bool), width, int(target[chosen].sum())))
        first += len(chosen)
    return steps


def sampled(steps: list[Step], num: int) -> list[Step]:
    """`num` of these batches, evenly spaced by length, in random order."""
    by_length = sorted(steps, key=lambda step: step.width)
    chosen = [by_length[int((place + 0.5) * len(by_length) / num)] for place in range(num)]
    return [chosen[place] for place in np.random.RandomState(0).permutation(num)]


def our_batches(data: TextData, batch_size: int, num: int, device: torch.device) -> list[Batch]:
    """`num` batches as in training."""
    loader = data.train_loader(batch_size, 1, Shard(0, 1, device))
    if isinstance(loader, TrainLoader):
        return made(data, sampled(list(loader.steps(0)), num), device)
    return list(islice(loader, num))  # Packed rows are all of one length.


def made(data: TextData, steps: list[Step], device: torch.device) -> list[Batch]:
    return [batch(data.train, step, device, 1 / step.num_targets) for step in steps]


def padding(batches: list[Batch]) -> float:
    """Share of padding in both languages."""
    places = sum(batch["source"].numel() + batch["labels"].numel() for batch in batches)
    return 1 - sum(sum(batch["num_tokens"]) for batch in batches) / places


def train_step(
    batches: list[Batch], loss: Callable[[Batch], torch.Tensor], optimizer: Any, clip: Any, kind: torch.dtype | None
) -> beside.Step:
    turn = cycle(batches)

    def step() -> None:
        batch = next(turn)
        optimizer.zero_grad()
        with torch.autocast(batch["source"].device.type, kind, enabled=kind is not None):
            value = loss(batch)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(*clip)
        optimizer.step()

    return step


def variants(
    model: str, batch_size: int, arguments: argparse.Namespace, device: torch.device
) -> Iterator[tuple[str, beside.Variant]]:
    config = composed([f"model={model}", "dataset=synthetic", f"precision={arguments.precision}", "gpus=0"])
    config.model.hparams |= TINY[model] if arguments.tiny else {}
    hparams, data = config.model.hparams, sentences(arguments.pairs)
    module: Any = make_module(load_workload(config), data, config).to(device)
    data = data.viewed(module.view)
    if arguments.compile:
        module.compile_hot_path()

    def variant(batches: list[Batch], net: nn.Module, loss: Any, optimizer: Any) -> beside.Variant:
        clip = (list(net.parameters()), hparams["clip_norm"]) if "clip_norm" in hparams else None
        step = train_step(batches, loss, optimizer, clip, AUTOCAST.get(arguments.precision))
        tokens = np.array([batch["num_tokens"] for batch in batches]).mean(axis=0)
        return beside.Variant(step, float(tokens[1] if model == "transformer" else tokens.sum()), padding(batches))

    batches, adam = our_batches(data, batch_size, arguments.steps, device), module.configure_optimizers()
    yield beside.OURS, variant(batches, module, lambda batch: module.training_step(batch, 0), adam)
    batches = made(data, sampled(fairseq_steps(data, batch_size), arguments.steps), device)
    for tuning in (beside.AS_IT_COMES, COMPILED) if arguments.compile else (beside.AS_IT_COMES,):
        network = peer(model, data.num_tokens, hparams).to(device)
        loss = loss_of(torch.compile(network, dynamic=True) if tuning == COMPILED else network)
        adam = torch.optim.Adam(network.parameters(), 1e-5, fused=True)
        yield f"{PEERS[model]}: {tuning}", variant(batches, network, loss, adam)


def peer(model: str, num_tokens: int, hparams: dict[str, Any]) -> nn.Module:
    sizes = {key: hparams[key] for key in ("layers", "width", "hidden", "heads", "dropout") if key in hparams}
    kind: Any = TorchTransformer if model == "transformer" else LstmStandIn
    network: nn.Module = kind(num_tokens, **sizes)
    return network


def loss_of(network: Any) -> Callable[[Batch], torch.Tensor]:
    def loss(batch: Batch) -> torch.Tensor:
        logits = network(batch["source"], batch["inputs"]).flatten(0, 1).float()
        losses = F.cross_entropy(logits, batch["labels"].flatten(), reduction="none", label_smoothing=0.1)
        return (losses * batch["weights"].flatten()).sum()

    return loss


def measured(model: str, batch_size: int, arguments: argparse.Namespace, device: torch.device) -> list[beside.Row]:
    ready = {}
    for name, variant in variants(model, batch_size, arguments, device):
        begun = time.perf_counter()
        try:
            with time_limit(0 if name == beside.OURS else arguments.compile_limit):
                for _ in range(arguments.steps):  # each batch once: shapes differ
                    variant.step()
                wait(device)
        except (torch.OutOfMemoryError, TooSlowError) as error:
            if name == beside.OURS:  # without ours there is nothing to compare
                raise
            print(f"{NAMES[model]}, {batch_size:,}, {name}: left out, {type(error).__name__}", flush=True)
            continue
        print(f"{NAMES[model]}, {batch_size:,}, {name}: warm after {time.perf_counter() - begun:.0f} s", flush=True)
        ready[name] = variant
    compared = beside.Comparison(NAMES[model], batch_size, UNITS[model], arguments.precision)
    with arguments.turns:
        return beside.in_turns(compared, ready, arguments, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=32, rounds=5)
    parser.add_argument("--models", nargs="+", default=["transformer", "gnmt"], choices=["transformer", "gnmt"])
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="room for tokens; default: the model's")
    parser.add_argument("--pairs", type=int, default=4_500_000, help="generated pairs of sentences; default: WMT's")
    parser.add_argument("--tiny", action="store_true", help="small networks, to check that it runs")
    parser.add_argument("--compile-limit", type=float, default=0, help="seconds for a peer to get ready; 0: no limit")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    arguments.compile = arguments.compile and device.type == "cuda"
    arguments.pairs = 2_000 if arguments.tiny else arguments.pairs
    raise_recompile_limit(128)
    precisions.apply(composed(["model=transformer", f"precision={arguments.precision}", "gpus=0"]).precision)
    rows: list[beside.Row] = []
    for model in arguments.models:
        default_size = 512 if arguments.tiny else composed([f"model={model}", "dataset=synthetic"]).model.batch_size
        for batch_size in arguments.batch_sizes or [default_size]:
            rows += measured(model, batch_size, arguments, device)
            beside.report(rows, arguments.out)
            torch._dynamo.reset()  # frees the memory of CUDA graphs
            release(device)


if __name__ == "__main__":
    main()
