"""Rates of our training step at GPT-2's size, modded-nanogpt's plain script and nanoGPT, on the same GPUs.

    git clone https://github.com/KellerJordan/modded-nanogpt; git clone https://github.com/karpathy/nanoGPT
    P=modded-nanogpt/records/track_3_optimization/train_gpt_simple.py
    python benchmarks/peers/gpt_steps.py --plain $P --out one.csv
    torchrun --nproc_per_node=2 benchmarks/peers/gpt_steps.py --plain $P --out two.csv
    python benchmarks/peers/gpt_steps.py --plain $P --losses 100
    python benchmarks/peers/gpt_steps.py --nanogpt nanoGPT/train.py

The scripts' own statements are executed unchanged. The plain script gives its definitions, first weights, optimizers,
step and loader, which reads generated tokens. nanoGPT gives all statements before its loop, and the loop's training.
Logging and evaluation are left out. A step has 524,288 tokens over all GPUs, nanoGPT's 491,520. Ours and the plain
script are timed in turns, nanoGPT by itself.

With --losses, ours and the plain script train from the same weights on the same batches. Printed is the largest
difference between their losses. Beside it is that between two runs of the plain script whose first weights differ
by rounding: so much comes from bf16 alone. Ours also differs by Muon's iterations (docs/language.md).
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
RESERVE_STEPS = 20  # for warming up


class Described:
    """The properties of a dataset that the model reads."""

    name, vocabulary, sequence_length, bytes_per_token = "generated", VOCABULARY, LENGTH, None


def write_tokens(folder: Path, steps: int) -> Path:
    """Path of a new shard in llm.c's format. Tokens follow Zipf's law; every second one follows from the one before."""
    rng = np.random.default_rng(1)
    number = (steps + 2) * TOKENS
    draws = (VOCABULARY ** rng.random(number, dtype=np.float32)).astype(np.int64) - 1
    tokens = np.where(np.arange(number) % 2, (np.roll(draws, 1) * 7 + 1) % VOCABULARY, draws)
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, number
    path = folder / SHARDS / "fineweb_train_000001.bin"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(tokens.astype(np.uint16).tobytes())
    return path


def our_batches(path: Path, tokens: int, device: torch.device) -> Iterator[dict[str, torch.Tensor]]:
    """This process's batches, in the plain script's order."""
    shard = np.memmap(path, np.uint16, offset=1024)
    share = tokens // dist.get_world_size()
    for first in range(dist.get_rank() * share, len(shard), tokens):
        host = torch.from_numpy(shard[first : first + share + 1].astype(np.int32)).pin_memory()
        tokens_on_device = host.to(device, non_blocking=True)
        inputs, targets = tokens_on_device[:-1], tokens_on_device[1:].long()
        yield {"inputs": inputs.view(-1, LENGTH), "targets": targets.view(-1, LENGTH)}


def ours(arguments: argparse.Namespace, path: Path, device: torch.device) -> tuple[Callable[[], torch.Tensor], Any]:
    """A step that returns its loss, and the module."""
    torch.manual_seed(1)
    data: Any = Described()
    module = LanguageModel(data, 0.025, 0.05, steps=3250, micro_batch_size=MICRO_BATCH).to(device)
    module.compile_hot_path()
    optimizer = module.configure_optimizers()
    batches = our_batches(path, arguments.tokens, device)
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


def print_once(text: str) -> None:
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(text, flush=True)


def warmed(name: str, step: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    begun = time.perf_counter()
    step()
    step()
    wait(device)
    print_once(f"{name}: warm after {time.perf_counter() - begun:.0f} s")
    return step


def rates(arguments: argparse.Namespace, folder: Path) -> None:
    device = join()
    path = write_tokens(folder, arguments.rounds * (arguments.steps + beside.SETTLING) + RESERVE_STEPS)
    os.chdir(folder)
    variants = {}
    step, _ = ours(arguments, path, device)
    variants[beside.OURS] = beside.Variant(warmed(beside.OURS, step, device), arguments.tokens)
    step_peak = torch.cuda.max_memory_allocated(device) / 2**30
    print_once(f"ours: {step_peak:.1f} GiB at most")
    if arguments.plain:
        release(device)
        plain, _names = plain_script(arguments.plain, arguments.tokens)
        name = f"{PLAIN}: {beside.AS_IT_COMES}"
        variants[name] = beside.Variant(warmed(name, plain, device), arguments.tokens)
    compared = beside.Comparison(f"GPT-2 124M on {dist.get_world_size()} GPUs", arguments.tokens, "tokens/s", "bf16")
    rows = beside.in_turns(compared, variants, arguments, device, prepare=lambda _: release(device))
    if dist.get_rank() == 0:
        beside.report(rows, arguments.out)
    for name, variant in variants.items() if arguments.kernels else ():
        release(device)
        kernels = recorded(variant.step, 1, device)
        busy, computing, exchanging, number = summed(kernels, 1)
        parts = f"{computing:.1f} of kernels, {exchanging:.1f} of NCCL, {number:.0f} kernels"
        print_once(f"\n{name}: {busy:.1f} ms busy, {parts}")
        print_once("\n".join(longest(kernels, 1, arguments.kernels)))


def recording_plain(arguments: argparse.Namespace) -> tuple[Callable[[], torch.Tensor], Any]:
    """A step of the plain script that returns its loss, and the script's model. First weights are of seed 1."""
    torch.manual_seed(1)
    plain, names = plain_script(arguments.plain, arguments.tokens)
    model, losses = names["model"], []

    def recorded_model(*batch: torch.Tensor) -> torch.Tensor:
        loss = model(*batch)
        losses.append(loss.detach())
        return loss

    def step() -> torch.Tensor:
        plain()
        loss = torch.stack(losses).sum() / (arguments.tokens / dist.get_world_size())
        losses.clear()
        return loss

    recorded_model.named_parameters = model.named_parameters  # type: ignore[attr-defined]
    recorded_model.zero_grad = model.zero_grad  # type: ignore[attr-defined]
    names["model"] = recorded_model
    return step, model


def compare_losses(arguments: argparse.Namespace, folder: Path) -> None:
    """Print losses of the plain script, of ours, and of the plain script from weights that differ by rounding."""
    device = join()
    path = write_tokens(folder, arguments.losses * arguments.tokens // TOKENS + 1)
    os.chdir(folder)
    plain, model = recording_plain(arguments)
    step, module = ours(arguments, path, device)
    module.net.load_state_dict(plain_weights(model))
    assert module.share_of_rate(arguments.losses) == 1.0, "--losses: give fewer, so that learning rates do not fall yet"
    losses = {name: step_losses(trained, arguments.losses) for name, trained in ((PLAIN, plain), ("ours", step))}
    # A second script only now: the compiler finds it by the same module name.
    moved, other = recording_plain(arguments)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.mul_(1 + ROUNDING)
    losses[MOVED] = step_losses(moved, arguments.losses)
    for number in range(0, arguments.losses, max(1, arguments.losses // 10)):
        row = ", ".join(f"{name} {values[number]:.5f}" for name, values in losses.items())
        print_once(f"step {number + 1}: {row}")
    for name in ("ours", MOVED):
        gaps = (losses[PLAIN] - losses[name]).abs()
        where = f"at step {int(gaps.argmax()) + 1}; mean {gaps.mean():.2e}; {int((gaps > CLOSE).sum())} above {CLOSE}"
        print_once(f"{name} beside {PLAIN}: largest difference of {arguments.losses} losses {gaps.max():.2e}, {where}")


def step_losses(step: Callable[[], torch.Tensor], number: int) -> torch.Tensor:
    """Losses of `number` steps, averaged over the processes."""
    values = torch.stack([step() for _ in range(number)]).float()
    dist.all_reduce(values, dist.ReduceOp.AVG)
    return values


def time_nanogpt(arguments: argparse.Namespace, folder: Path) -> None:
    step, tokens = nanogpt(arguments.nanogpt, folder)
    device = torch.device("cuda", torch.cuda.current_device())
    warmed(NANOGPT, step, device)
    values = [1e3 * tokens / mean(beside.steps_ms(step, arguments.steps, device)) for _ in range(arguments.rounds)]
    rounds = f"{len(values)} rounds of {arguments.steps} steps of {tokens:,} tokens"
    print_once(f"{NANOGPT}: {beside.spread(values)} tokens/s in {rounds}")
    print_once(", ".join(f"{key} {value}" for key, value in beside.machine(arguments.commit, device).items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=3, rounds=3)
    parser.add_argument("--plain", type=Path, help="path of train_gpt_simple.py")
    parser.add_argument("--nanogpt", type=Path, help="path of nanoGPT's train.py; times only nanoGPT")
    parser.add_argument("--losses", type=int, default=0, help="number of losses to compare; times nothing")
    parser.add_argument("--kernels", type=int, default=0, help="number of longest kernels to list for each step")
    parser.add_argument("--tokens", type=int, help="tokens of a step; default: 524,288, with --losses 131,072")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or arguments.precision != "bf16":
        parser.error("needs an NVIDIA GPU and --precision bf16: the scripts train so")
    if arguments.losses and not arguments.plain:
        parser.error("--losses compares with --plain: give both")
    arguments.tokens = arguments.tokens or (TOKENS // 4 if arguments.losses else TOKENS)
    for name in ("plain", "nanogpt", "out"):
        if path := getattr(arguments, name):
            setattr(arguments, name, path.resolve())
    begin = time_nanogpt if arguments.nanogpt else compare_losses if arguments.losses else rates
    with tempfile.TemporaryDirectory(prefix="gpt_steps_") as folder:
        begin(arguments, Path(folder))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
