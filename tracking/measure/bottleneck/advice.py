"""The evidence for a run's limit, and what to try first against it. Pure functions of what the run has measured.

An advice names an option that this run has not taken yet. Where none is left, it says what else would help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracking.measure.bottleneck.time_shares import Clock

TWO_BYTES = ("bf16", "fp16")
DECODED = ("shapes", "imagenet", "coco")  # datasets whose threads `dataset.num_threads` counts


@dataclass(frozen=True)
class Asked:
    """What a run was asked for, by its params: `ours` where timetrial trains, and not a user's script or program."""

    ours: bool
    precision: str
    compiled: bool
    dataset: str = ""

    @staticmethod
    def of(params: Mapping[str, str]) -> Asked:
        compiled = params.get("compile") == "True"  # A script does not tell.
        return Asked("compile" in params, params.get("precision", ""), compiled, params.get("dataset", ""))


def why(cause: str, clock: Clock, means: Mapping[str, float]) -> str:
    """The measurement behind a limit, in words; empty where the cause is not known."""

    def percent(key: str) -> str:
        return f"{means.get(f'gpu_{key}_percentage', 0.0):.0f} %"

    words: dict[str, Callable[[], str]] = {
        "data": lambda: f"steps waited {clock.data or 0.0:.3g} s for their batches, on the process that waited most",
        "host": lambda: f"the GPU's engines were at work in {percent('engine_activity')} of the training",
        "exchange": lambda: f"the exchanges of gradients took {clock.exchange or 0.0:.3g} s",
        "evaluation": lambda: f"evaluations took {clock.evaluation:.3g} of {clock.total:.3g} s",
        "checkpoint": lambda: f"checkpoints took {clock.checkpoint:.3g} of {clock.total:.3g} s",
        "dram": lambda: f"the GPU's memory was busy in {percent('dram_bandwidth')} of the cycles",
        "tensor": lambda: f"the tensor cores were busy in {percent('tensor_activity')} of the cycles",
        "fp32": lambda: f"the fp32 cores were busy in {percent('fp32_activity')} of the cycles",
        "power": lambda: f"the clock was at {percent('sm_clock')} of its highest",
        "processor": lambda: f"the run kept {means.get('run_cpu_percentage', 0.0):.0f} % of the cores busy",
    }
    return words[cause]() if cause in words else ""


def first_try(cause: str, asked: Asked) -> str:
    """What to try first against a limit, as an option to type where there is one."""
    advices: dict[str, Callable[[Asked], str]] = {
        "data": _against_waiting,
        "host": lambda run: "a larger batch_size, so that each step has more work" if run.compiled else _compile(run),
        "exchange": lambda _: "a larger batch_size, so that fewer steps exchange gradients",
        "evaluation": lambda run: "fewer evaluations" + (": a larger eval_every_steps, or eval_at_epochs" * run.ours),
        "checkpoint": lambda run: "fewer checkpoints" + (": a larger checkpoint_every_steps" * run.ours),
        "dram": _against_traffic,
        "tensor": lambda run: _narrower(run, "more GPUs, or quicker ones: the cores that multiply are the limit"),
        "fp32": lambda run: _narrower(run, "more GPUs, or quicker ones"),
        "power": lambda _: "a higher power limit or better cooling: nvidia-smi -q -d POWER,PERFORMANCE",
        "processor": lambda run: f"a GPU{' (gpus=1)' * run.ours}, or more cores",
        "unknown": lambda run: "a trace of the kernels" + (": profile.steps=20" * run.ours),
    }
    return advices[cause](asked)


def _against_waiting(asked: Asked) -> str:
    if not asked.ours:
        return "more processes that load: DataLoader(num_workers=...), or data that are read in less time"
    if asked.dataset in DECODED:
        return "more threads that decode: a larger dataset.num_threads, as the cores allow"
    return "more cores, or a larger batch_size, so that there are fewer batches to make"


def _against_traffic(asked: Asked) -> str:
    if asked.precision not in TWO_BYTES:
        return _narrower(asked, "")
    return "a GPU with quicker memory" if asked.compiled else _compile(asked)


def _narrower(asked: Asked, otherwise: str) -> str:
    if asked.precision in TWO_BYTES:
        return otherwise
    return "precision=bf16" if asked.ours else "a narrower precision: bf16"


def _compile(asked: Asked) -> str:
    return "compile=true" if asked.ours else "torch.compile, which makes fewer and larger kernels"


def lines(cause: str, words: str, clock: Clock, means: Mapping[str, float], asked: Asked) -> dict[str, Any]:
    """Verdict, why and next, for a run's result."""
    return {"cause": cause, "words": words, "why": why(cause, clock, means), "next": first_try(cause, asked)}
