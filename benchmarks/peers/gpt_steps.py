"""Our training step of GPT-2's size beside modded-nanogpt's plain script and nanoGPT, in turns on the same GPUs.

    git clone https://github.com/KellerJordan/modded-nanogpt; git clone https://github.com/karpathy/nanoGPT
    P=modded-nanogpt/records/track_3_optimization/train_gpt_simple.py
    python benchmarks/peers/gpt_steps.py --plain $P --out one.csv
    torchrun --nproc_per_node=2 benchmarks/peers/gpt_steps.py --plain $P --out two.csv
    python benchmarks/peers/gpt_steps.py --plain $P --losses 100
    python benchmarks/peers/gpt_steps.py --nanogpt nanoGPT/train.py

The scripts' own statements are executed as they stand: the plain one's definitions, first weights, optimizers and
step, with its loader on tokens that are written for it; of nanoGPT's all before its loop, and of that what trains. What
logs and evaluates is left out. A step is of 524,288 tokens over all GPUs, nanoGPT's of 491,520. With --losses both
train as many steps from the same weights on the same batches, and the largest difference of their losses is printed.
Beside it stands that of the plain script from weights that differ by rounding alone: so far bf16 goes by itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.peers import beside
from benchmarks.peers.gpt_scripts import VOCABULARY, nanogpt, plain_script, plain_weights
from benchmarks.steps.device_kernels import longest, recorded, release, summed, wait
from trainers.loop.ddp import Gradients
from trainers.models.gpt import LanguageModel

TOKENS, MICRO_BATCH, LENGTH = 524_288, 65_536, 1024
SHARDS = "data/fineweb10B"
PLAIN, NANOGPT = "plain script", "nanoGPT"
MOVED = "plain script from weights moved by rounding"
ROUNDING, CLOSE = 1e-6, 1e-2
RESERVE_STEPS = 20  # of warming up


class Described:
    """What the model asks of its data."""

    name, vocabulary, sequence_length, bytes_per_token = "generated", VOCABULARY, LENGTH, None


def write_tokens(folder: Path, steps: int) -> Path:
    """A shard of llm.c's with enough tokens, drawn as if by Zipf's law, each depending on the one before."""
    rng = np.random.default_rng(1)
    number = (steps + 2) * TOKENS
    draws = (VOCABULARY ** rng.random(number, dtype=np.float32)).astype(np.int64) - 1
    tokens = np.where(np.arange(number) % 2, (np.roll(draws, 1) * 7 + 1) % VOCABULARY, draws)  # Each second is known.
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, number
    path = folder / SHARDS / "fineweb_train_000001.bin"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(tokens.astype(np.uint16).tobytes())
    return path


def our_batches(path: Path, tokens: int, device: torch.device) -> Iterator[dict[str, torch.Tensor]]:
    """Those of this process in the plain script's order."""
    shard = np.memmap(path, np.uint16, offset=1024)
    share = tokens // dist.get_world_size()
    for first in range(dist.get_rank() * share, len(shard), tokens):
        own = torch.from_numpy(shard[first : first + share + 1].astype(np.int32)).pin_memory()
        moved = own.to(device, non_blocking=True)
        yield {"inputs": moved[:-1].view(-1, LENGTH), "targets": moved[1:].long().view(-1, LENGTH)}


def ours(asked: argparse.Namespace, path: Path, device: torch.device) -> tuple[Callable[[], torch.Tensor], Any]:
    """A step that gives its loss, and the module."""
    torch.manual_seed(1)
    data: Any = Described()
    module = LanguageModel(data, 0.025, 0.05, steps=3250, micro_batch_size=MICRO_BATCH).to(device)
    module.compile_hot_path()
    optimizer = module.configure_optimizers()
    batches = our_batches(path, asked.tokens, device)
    gradients = Gradients(module) if dist.get_world_size() > 1 else None

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = module.training_step(next(batches), 0)
        loss.backward()
        if gradients is not None:
            gradients.average()
        optimizer.step()
        return loss.detach()

    return step, module


def join() -> torch.device:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    rank, world_size, local = (int(os.environ.get(name, other)) for name, other in ENVIRONMENT)
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=world_size, device_id=device)
    return device


ENVIRONMENT = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


def say(words: str) -> None:
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(words, flush=True)


def warmed(name: str, step: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    begun = time.perf_counter()
    step()
    step()
    wait(device)
    say(f"{name}: warm after {time.perf_counter() - begun:.0f} s")
    return step


def rates(asked: argparse.Namespace, folder: Path) -> None:
    device = join()
    path = write_tokens(folder, asked.rounds * (asked.steps + beside.SETTLING) + RESERVE_STEPS)
    os.chdir(folder)
    variants = {}
    step, _ = ours(asked, path, device)
    variants[beside.OURS] = beside.Variant(warmed(beside.OURS, step, device), asked.tokens)
    step_peak = torch.cuda.max_memory_allocated(device) / 2**30
    say(f"ours: {step_peak:.1f} GiB at most")
    if asked.plain:
        release(device)
        plain, _names = plain_script(asked.plain, asked.tokens)
        name = f"{PLAIN}: {beside.AS_IT_COMES}"
        variants[name] = beside.Variant(warmed(name, plain, device), asked.tokens)
    compared = beside.Comparison(f"GPT-2 124M on {dist.get_world_size()} GPUs", asked.tokens, "tokens/s", "bf16")
    rows = beside.in_turns(compared, variants, asked, device, prepare=lambda _: release(device))
    if dist.get_rank() == 0:
        beside.report(rows, asked.out)
    for name, variant in variants.items() if asked.kernels else ():
        release(device)
        kernels = recorded(variant.step, 1, device)
        busy, computing, exchanging, number = summed(kernels, 1)
        say(f"\n{name}: {busy:.1f} ms busy, {computing:.1f} of kernels, {exchanging:.1f} of NCCL, {number:.0f} kernels")
        say("\n".join(longest(kernels, 1, asked.kernels)))


def noting_plain(asked: argparse.Namespace) -> tuple[Callable[[], torch.Tensor], Any]:
    """The plain script's step, which gives its loss, and its model. The first weights are those of seed 1."""
    torch.manual_seed(1)
    plain, names = plain_script(asked.plain, asked.tokens)
    model, seen = names["model"], []

    def noted(*batch: torch.Tensor) -> torch.Tensor:
        loss = model(*batch)
        seen.append(loss.detach())
        return loss

    def step() -> torch.Tensor:
        plain()
        loss = torch.stack(seen).sum() / (asked.tokens / dist.get_world_size())
        seen.clear()
        return loss

    noted.named_parameters, noted.zero_grad = model.named_parameters, model.zero_grad  # type: ignore[attr-defined]
    names["model"] = noted
    return step, model


def compare_losses(asked: argparse.Namespace, folder: Path) -> None:
    """Ours, and the plain script from weights that differ by rounding, beside the plain script."""
    device = join()
    path = write_tokens(folder, asked.losses * asked.tokens // TOKENS + 1)
    os.chdir(folder)
    plain, model = noting_plain(asked)
    step, module = ours(asked, path, device)
    module.net.load_state_dict(plain_weights(model))
    assert module.share_of_rate(asked.losses) == 1.0, "give fewer losses: rates fall only later, and here never"
    losses = {name: step_losses(trained, asked.losses) for name, trained in ((PLAIN, plain), ("ours", step))}
    moved, other = noting_plain(
        asked
    )  # The compiler finds the script by its name, so one is done before another comes.
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.mul_(1 + ROUNDING)
    losses[MOVED] = step_losses(moved, asked.losses)
    for number in range(0, asked.losses, max(1, asked.losses // 10)):
        say(f"step {number + 1}: " + ", ".join(f"{name} {values[number]:.5f}" for name, values in losses.items()))
    for name in ("ours", MOVED):
        gaps = (losses[PLAIN] - losses[name]).abs()
        where = f"at step {int(gaps.argmax()) + 1}; mean {gaps.mean():.2e}; {int((gaps > CLOSE).sum())} above {CLOSE}"
        say(f"{name} beside {PLAIN}: largest difference of {asked.losses} losses {gaps.max():.2e}, {where}")


def step_losses(step: Callable[[], torch.Tensor], number: int) -> torch.Tensor:
    """The losses of so many steps, as means over the processes."""
    values = torch.stack([step() for _ in range(number)]).float()
    dist.all_reduce(values, dist.ReduceOp.AVG)
    return values


def time_nanogpt(asked: argparse.Namespace, folder: Path) -> None:
    step, tokens = nanogpt(asked.nanogpt, folder)
    device = torch.device("cuda", torch.cuda.current_device())
    warmed(NANOGPT, step, device)
    values = [1e3 * tokens / mean(beside.steps_ms(step, asked.steps, device)) for _ in range(asked.rounds)]
    rounds = f"{len(values)} rounds of {asked.steps} steps of {tokens:,} tokens"
    say(f"{NANOGPT}: {beside.spread(values)} tokens/s in {rounds}")
    say(", ".join(f"{key} {value}" for key, value in beside.machine(asked.commit, device).items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=3, rounds=3)
    parser.add_argument("--plain", type=Path, help="path of train_gpt_simple.py")
    parser.add_argument("--nanogpt", type=Path, help="path of nanoGPT's train.py, which is then timed alone")
    parser.add_argument("--losses", type=int, default=0, help="compare so many losses, and time nothing")
    parser.add_argument("--kernels", type=int, default=0, help="list so many of each step's longest kernels, too")
    parser.add_argument("--tokens", type=int, help="a step; default: 524,288, of --losses 131,072")
    asked = parser.parse_args()
    if not torch.cuda.is_available() or asked.precision != "bf16":
        parser.error("the scripts train on an NVIDIA GPU, in bf16")
    if asked.losses and not asked.plain:
        parser.error("--losses compares with --plain; give both")
    asked.tokens = asked.tokens or (TOKENS // 4 if asked.losses else TOKENS)
    for name in ("plain", "nanogpt", "out"):
        if given := getattr(asked, name):
            setattr(asked, name, given.resolve())
    begin = time_nanogpt if asked.nanogpt else compare_losses if asked.losses else rates
    with tempfile.TemporaryDirectory(prefix="gpt_steps_") as folder:
        begin(asked, Path(folder))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
