"""Rates of torchtitan's Llama 3 8B and of ours, on the same GPUs one after the other.

    pip install --no-deps --target titan torchtitan==0.2.2 torchao==0.17.0 torchdata datasets dill multiprocess xxhash
    pip install --no-deps --target titan tomli tyro docstring-parser shtab typeguard
    python benchmarks/larger/torchtitan_steps.py --titan-path titan --out titan.json
    python benchmarks/larger/torchtitan_steps.py --titan-path titan --precision bf16 fp8 --checkpointing selective

torchtitan runs unmodified under torchrun, by its own FSDP and torch.compile, and its rates, memory and parameters are
those that it logs at each step. Its tokens are random words of a generated text, which another process reads ahead; its
vocabulary is of its flavor, not of the tokenizer. Ours are random ids. Both sides have as many tokens a step and a
micro-batch, the same sequences, untimed and timed steps, and wait for each step's mean loss over the GPUs.
torchtitan trains by AdamW. Ours trains by Muon, whose time does not fall with fewer tokens a step; `ours_adamw` is our
step with torchtitan's optimizer in its place. With `--checkpointing selective` or `full` ours recomputes whole layers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.larger.steps import Case, config_of, trained
from benchmarks.peers import beside
from conf.schema import RunConfig
from trainers.loop.process_group import join
from trainers.models.gpt import LanguageModel

TITAN, OURS, OURS_ADAMW = SIDES = ("torchtitan", "ours", "ours_adamw")
CHECKPOINTING = ("none", "selective", "full")
FLOAT8 = [
    "--model.converters=quantize.linear.float8", "--quantize.linear.float8.enable_fsdp_float8_all_gather",
    "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", "--quantize.linear.float8.filter_fqns=output",
]  # fmt: skip
ADAMW: dict[str, Any] = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True}
SIZES = {False: ("8B", 128_256, 8192), True: ("debugmodel", 2048, 256)}  # flavor, vocabulary, sequence, if tiny
SHAPE = ("gpus", "tokens", "sequence", "sequences", "checkpointing", "warm_up")
TINY = [f"model.hparams.{pair}" for pair in ("layers=6", "width=256", "heads=16", "kv_heads=16", "hidden=3")]
LOGGED = re.compile(
    r"step: +(?P<step>\d+) +loss: +(?P<loss>\S+) +grad_norm: +\S+ +memory: +(?P<gib>[\d.]+)GiB\(\S+\) +"
    r"tps: (?P<rate>\d+) +tflops: (?P<tflops>[\d.]+)"
)
TORCHRUN = ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--role=rank", "--tee=3"]
PROCESS, WELL, TAIL_LINES = "process", "exit status 0", 25

Figures = dict[str, Any]


def logged(text: str) -> Figures:
    """The figures of torchtitan's log. Raises AssertionError if it has no step or no size."""
    plain = text.replace(",", "")
    steps = {int(line["step"]): line for line in LOGGED.finditer(plain)}
    size = re.search(r"size: (\d+) total parameters", plain)
    assert size is not None, "torchtitan's log has no number of parameters"
    assert steps, "torchtitan's log has no line of a step"
    lines = [steps[key] for key in sorted(steps)]
    return {
        "rates": [float(line["rate"]) for line in lines], "loss": float(lines[-1]["loss"]),
        "reserved_gb": max(float(line["gib"]) for line in lines) * 2**30 / 1e9, "parameters": int(size[1]),
        "flops_a_token": 1e12 * float(lines[-1]["tflops"]) / float(lines[-1]["rate"]),
    }  # fmt: skip


def write_text(folder: Path, vocabulary: int, sequence: int, sequences: int) -> None:
    """Write `tokenizer` and `data`: a tokenizer with a word for each id, and texts of random words, a sequence each."""
    words = {"type": "WordLevel", "vocab": {str(word): word for word in range(vocabulary)}, "unk_token": "0"}
    ids = np.random.default_rng(1).integers(0, vocabulary, (sequences, sequence + 1))
    texts = "".join(json.dumps({"text": " ".join(map(str, row))}) + "\n" for row in ids)
    tokenizer = json.dumps({"version": "1.0", "model": words, "pre_tokenizer": {"type": "WhitespaceSplit"}})
    for name, text in (("tokenizer/tokenizer.json", tokenizer), ("data/data.json", texts)):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)


def titan_options(arguments: argparse.Namespace, precision: str, folder: Path) -> list[str]:
    steps = arguments.warm_up + arguments.steps
    return [
        "--model.name=llama3", f"--model.flavor={arguments.flavor}",
        f"--model.hf_assets_path={folder / 'tokenizer'}", "--training.dataset=c4_test",
        f"--training.dataset_path={folder / 'data'}", f"--training.seq_len={arguments.sequence}",
        f"--training.local_batch_size={arguments.sequences}", f"--training.steps={steps}",
        f"--training.global_batch_size={arguments.tokens // arguments.sequence}",
        "--training.dataloader.num_workers=1", "--training.dataloader.prefetch_factor=8",
        f"--optimizer.lr={ADAMW['lr']}", "--compile.enable", "--metrics.log_freq=1", "--metrics.disable_color_printing",
        f"--job.dump_folder={folder / 'titan'}", f"--activation_checkpoint.mode={arguments.checkpointing}",
        "--activation_checkpoint.selective_ac_option=op", *(FLOAT8 if precision == "fp8" else []),
    ]  # fmt: skip


def ends_well(command: list[str], environment: dict[str, str], log: Path, seconds: float) -> bool:
    """Return whether a command ends with 0 within `seconds`; if not, print the end of its output."""
    with log.open("w") as file:
        streams: dict[str, Any] = {"stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=os.environ | environment, cwd=log.parent, **streams)
        try:
            ended = f"exit status {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            ended = f"no end within {seconds:.0f} s"
        finally:
            process.terminate()  # torchrun then ends its processes, and kills them after 30 s.
            process.wait()
    if ended != WELL:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        print(*lines, f"{log.stem}: {ended}; above the end of its output", sep="\n", flush=True)
    return ended == WELL


def measured(arguments: argparse.Namespace, side: str, precision: str, folder: Path) -> list[Figures]:
    """Run a side; return its figures, or none if it fails."""
    log = folder / f"{side}_{precision}.log"
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={arguments.processes}", *TORCHRUN]
    environment: dict[str, str] = {}
    if side == TITAN:
        command += ["--local-ranks-filter=0", "-m", "torchtitan.train", *titan_options(arguments, precision, folder)]
        environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # as its run_train.sh does
        environment |= {"PYTHONPATH": str(arguments.titan_path.resolve())} if arguments.titan_path else {}
    else:
        given = json.dumps({**vars(arguments), "side": side, "precision": precision, "log": log}, default=str)
        alone = ["--virtual-local-rank"] if arguments.gpus else []  # Each process sees only its own GPU.
        command += [*alone, str(Path(__file__).resolve()), PROCESS, given]
    begun = time.perf_counter()
    if not ends_well(command, environment, log, arguments.limit):
        return []
    figures: Figures = logged(log.read_text()) if side == TITAN else json.loads(log.with_suffix(".json").read_text())
    rates = ", ".join(f"{rate:,.0f}" for rate in figures["rates"])
    print(f"{side} {precision}: {time.perf_counter() - begun:.0f} s; each step's tokens/s a GPU: {rates}", flush=True)
    return [figures | {"side": side, "precision": precision, "timed": figures["rates"][arguments.warm_up :]}]


def our_config(given: argparse.Namespace) -> RunConfig:
    micro_batch, recomputes = given.sequences * given.sequence, str(given.checkpointing != "none").lower()
    options = (
        f"gpus={given.gpus}", f"dataset.vocabulary={given.vocabulary}", f"dataset.sequence_length={given.sequence}",
        f"model.hparams.vocabulary={given.vocabulary}", f"model.hparams.micro_batch_size={micro_batch}",
        f"model.hparams.activation_checkpointing={recomputes}", *(TINY if given.tiny else ()),
    )  # fmt: skip
    case = Case("llama_8b", given.precision, "fsdp" if given.gpus else "ddp", given.tokens, options=options)
    return config_of(case, given.processes)


def train_ours(given: argparse.Namespace) -> None:
    """Train in one of torchrun's processes. Rank 0 writes the figures."""
    if given.side == OURS_ADAMW:
        LanguageModel.configure_optimizers = lambda self: torch.optim.AdamW(self.parameters(), **ADAMW)  # type: ignore
    config = our_config(given)
    shard = join(config)
    step, module, _ = trained(config, shard)
    times = [time.perf_counter()]
    for _ in range(given.warm_up + given.steps):
        loss = step()
        dist.all_reduce(loss)
        mean = float(loss) / shard.world_size  # waits for the device
        times.append(time.perf_counter())
    rates = [given.tokens / shard.world_size / (after - before) for before, after in pairwise(times)]
    if shard.rank == 0:
        figures = {
            "rates": rates, "loss": mean, "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "flops_a_token": module.flops_per_sample(),
        }  # fmt: skip
        Path(given.log).with_suffix(".json").write_text(json.dumps(figures))
    dist.destroy_process_group()


def error(values: list[float]) -> float:
    """Standard error of the mean; NaN of a single value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan


def ratio(ours: list[float], peer: list[float]) -> str:
    """The quotient of two means, and its standard error by those of the means."""
    quotient = statistics.mean(ours) / statistics.mean(peer)
    shares = (error(values) / statistics.mean(values) for values in (ours, peer))
    return f"{quotient:.3f} ± {quotient * math.hypot(*shares):.3f}"


def table(rows: list[Figures]) -> str:
    """Markdown table of the sides, with ours over torchtitan in the same precision."""
    lines = ["side | precision | n | tokens/s a GPU | over torchtitan | reserved memory | parameters | GFLOPs a token"]
    lines.append(" | ".join(["---"] * 8))
    peers = {row["precision"]: row["timed"] for row in rows if row["side"] == TITAN}
    for row in rows:
        timed, peer = row["timed"], peers.get(row["precision"])
        cells = [
            row["side"], row["precision"], f"{len(timed)}", f"{statistics.mean(timed):,.0f} ± {error(timed):,.0f}",
            ratio(timed, peer) if peer and row["side"] != TITAN else "", f"{row['reserved_gb']:.1f} GB",
            f"{row['parameters']:,}", f"{row['flops_a_token'] / 1e9:.2f}",
        ]  # fmt: skip
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def checked() -> argparse.Namespace:
    """Return the arguments, completed. Exits with an error for numbers that do not divide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--titan-path", type=Path, help="folder with torchtitan and what it needs; default: installed")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=[TITAN, OURS])
    parser.add_argument("--precision", nargs="+", choices=("bf16", "fp8"), default=["bf16"])
    parser.add_argument("--checkpointing", choices=CHECKPOINTING, default="none", help="of activations")
    parser.add_argument("--gpus", type=int, default=torch.cuda.device_count(), help="default: all; 0: the CPU")
    parser.add_argument("--tokens", type=int, help="of a step, all GPUs together; default: 4 micro-batches a GPU")
    parser.add_argument("--sequences", type=int, default=1, help="sequences in a micro-batch of a GPU")
    parser.add_argument("--warm-up", type=int, default=8, help="untimed steps")
    parser.add_argument("--steps", type=int, default=6, help="timed steps")
    parser.add_argument("--limit", type=float, default=280, help="seconds for a side")
    parser.add_argument("--tiny", action="store_true", help="small models, to check that it runs")
    parser.add_argument("--commit", default=beside.commit(), help="for a checkout without .git")
    parser.add_argument("--out", type=Path, help="JSON file of all figures, written after each side")
    arguments = parser.parse_args()
    arguments.flavor, arguments.vocabulary, arguments.sequence = SIZES[arguments.tiny]
    arguments.processes = max(1, arguments.gpus)
    held = arguments.processes * arguments.sequences * arguments.sequence
    arguments.tokens = arguments.tokens or 4 * held
    if arguments.tokens % held:
        parser.error(f"--tokens {arguments.tokens}: give a multiple of {held:,}, a micro-batch of each GPU")
    if not arguments.gpus and TITAN in arguments.sides:
        parser.error(f"--sides {TITAN}: needs an NVIDIA GPU; on a CPU give --sides ours --tiny")
    return arguments


def main() -> None:
    if sys.argv[1:2] == [PROCESS]:
        train_ours(argparse.Namespace(**json.loads(sys.argv[2])))
        return
    arguments = checked()
    about = beside.machine(arguments.commit, torch.device("cuda" if arguments.gpus else "cpu"))
    about |= {key: getattr(arguments, key) for key in SHAPE}
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    rows: list[Figures] = []
    runs = [(side, precision) for precision in arguments.precision for side in arguments.sides]
    with tempfile.TemporaryDirectory(prefix="torchtitan_steps_") as name:
        texts = (arguments.warm_up + arguments.steps + 8) * arguments.tokens // arguments.sequence
        write_text(Path(name), arguments.vocabulary, arguments.sequence, texts)
        for side, precision in runs:
            rows += measured(arguments, side, precision, Path(name))
            if arguments.out:
                arguments.out.write_text(json.dumps(about | {"rows": rows}))
    print(f"\n{table(rows)}")
    sys.exit(len(rows) < len(runs))


if __name__ == "__main__":
    main()
