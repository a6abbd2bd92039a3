"""The evidence for a run's limit, and what to try first against it. Pure functions of the run's measurements.

Advice names an option that this run has not used yet, or if all are used, what else would help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.measure.bottleneck.time_shares import Clock

HALF_PRECISIONS = ("bf16", "fp16", "fp8")
LARGE_CO_TENANT_PERCENT = 10.0  # a share of the cores from which co-tenants are named, as by the tag `neighbours`
ALONE = "run it again on cores of its own"  # what comes before any advice after a shared machine
NO_MEANS: Mapping[str, float] = MappingProxyType({})
USABLE_MEMORY_PERCENT = 90.0  # of a GPU's memory; the rest is for fragmentation and longer samples
STACK_CAUSES = (
    "host",
    "dram",
    "tensor",
    "fp32",
    "kernels",
    "latency",
    "processor",
    "unknown",
)  # what other kernels may change
EVALUATIONS = ": a larger eval_every_steps or eval_every_samples, or eval_at_epochs"
DECODED_DATASETS = ("shapes", "imagenet", "coco")  # datasets decoded by `dataset.num_threads` threads


@dataclass(frozen=True)
class RunOptions:
    """A run's options, from its params. `ours`: timetrial trains, not a user's script or program.

    `batch_key` is the option for the samples that a GPU holds at once. `batch_size` and `memory_percent`, the highest
    share of a GPU's memory in use, are 0 if not known.
    """

    ours: bool
    precision: str
    compiled: bool
    dataset: str = ""
    batch_key: str = "batch_size"
    batch_size: int = 0
    memory_percent: float = 0.0

    @staticmethod
    def of(params: Mapping[str, str], memory_percent: float = 0.0) -> RunOptions:
        compiled = params.get("compile") == "True"  # a script does not say
        key = "hparams/micro_batch_size" if "hparams/micro_batch_size" in params else "batch_size"
        batch_key = key if key == "batch_size" else f"model.{key.replace('/', '.')}"
        size = params.get(key, "")
        return RunOptions(
            "compile" in params, params.get("precision", ""), compiled, params.get("dataset", ""), batch_key,
            int(size) if size.isdigit() else 0, memory_percent,
        )  # fmt: skip

    @property
    def step_key(self) -> str:
        """The option for the samples of a step; with micro-batches, `batch_size=` is refused."""
        return "batch_size" if self.batch_key == "batch_size" else "global_batch_size"

    def batch_that_fits(self) -> int | None:
        """The batch size times the largest power of two that fits; None if memory or batch size are not known.

        It is a lower estimate: all memory counts as growing with the batch, also that of weights and optimizer.
        """
        if not self.batch_size or not self.memory_percent:
            return None
        doublings = math.floor(math.log2(max(1.0, USABLE_MEMORY_PERCENT / self.memory_percent)))
        return int(self.batch_size * 2**doublings)


def why(cause: str, clock: Clock, means: Mapping[str, float]) -> str:
    """The measurement behind a limit, in words; "" for an unknown cause."""

    def percent(key: str) -> str:
        return f"{means.get(f'gpu_{key}_percentage', 0.0):.0f} %"

    def of_total(seconds: float | None) -> str:
        return f"{seconds or 0.0:.3g} of {clock.total:.3g} s"

    words: dict[str, Callable[[], str]] = {
        "data": lambda: f"steps waited {of_total(clock.data)} for their batches",
        "host": lambda: f"the GPU's engines worked in {percent('engine_activity')} of the training",
        "exchange": lambda: f"the exchanges of gradients took {of_total(clock.exchange)}",
        "evaluation": lambda: f"evaluations took {of_total(clock.evaluation)}",
        "checkpoint": lambda: f"checkpoints took {of_total(clock.checkpoint)}",
        "dram": lambda: f"the GPU's memory was busy in {percent('dram_bandwidth')} of the cycles",
        "tensor": lambda: f"the tensor cores were busy in {percent('tensor_activity')} of the cycles",
        "fp32": lambda: f"the fp32 cores were busy in {percent('fp32_activity')} of the cycles",
        "power": lambda: f"the clock was at {percent('sm_clock')} of its highest",
        "kernels": lambda: (
            f"kernels ran in {percent('engine_activity')} of the training, and kept {percent('sm_activity')} of the "
            "multiprocessors busy"
        ),
        "latency": lambda: (
            f"the multiprocessors had work in {percent('sm_activity')} of the training, and neither the memory nor the "
            "cores that multiply account for it"
        ),
        "gc": lambda: f"Python's garbage collection took {of_total(clock.gc)}",
        "imbalance": lambda: f"the other ranks waited {of_total(clock.imbalance)} for the slow one",
        "selfplay": lambda: f"self-play took {of_total(clock.phases.get('selfplay'))}",
        "gate": lambda: f"matches of the gate took {of_total(clock.phases.get('gate'))}",
        "update": lambda: f"updates of the weights took {of_total(clock.update)}",
        "processor": lambda: f"the run kept {means.get('run_cpu_percentage', 0.0):.0f} % of the cores busy",
        "neighbours": lambda: f"others had {means.get('neighbours_cpu_percentage', 0.0):.0f} % of the run's cores",
    }
    return words[cause]() if cause in words else ""


def first_try(cause: str, options: RunOptions) -> str:
    """What to try first against a limit, as an option to type if there is one."""
    advices: dict[str, Callable[[RunOptions], str]] = {
        "data": _against_waiting,
        "host": lambda run: _larger_batch(run, "so that each step has more work") if run.compiled else _compile(run),
        "exchange": _fewer_exchanges,
        "evaluation": lambda run: "fewer evaluations" + EVALUATIONS * run.ours,
        "checkpoint": lambda run: "fewer checkpoints" + (": a larger checkpoint_every_steps" * run.ours),
        "dram": _against_traffic,
        "tensor": lambda run: _narrower(run, "more GPUs, or quicker ones: the cores that multiply are the limit"),
        "fp32": lambda run: _narrower(run, "more GPUs, or quicker ones"),
        "power": lambda _: "a higher power limit, or better cooling: see nvidia-smi -q -d POWER,PERFORMANCE",
        "kernels": lambda run: _larger_batch(run, "so that kernels fill the GPU") if run.compiled else _compile(run),
        "gc": lambda _: "gc.freeze() before the training, or gc.disable() and gc.collect() every few hundred steps",
        "imbalance": lambda _: "what the slow rank does differently: its run's table names it and its cause",
        "selfplay": lambda _: (
            "more GPUs, or a larger model.hparams.games_at_once: each evaluation takes more positions"
        ),
        "gate": lambda _: "fewer games or readouts of the gate: model.hparams.gate_games, match_readouts",
        "update": lambda run: f"a larger {run.step_key}, so that fewer steps update the weights",
        "processor": lambda run: f"a GPU{' (gpus=1)' * run.ours}, or more cores",
        "neighbours": lambda _: f"{ALONE}: end the other processes, or keep them off (taskset, a scheduler's cpuset)",
        "latency": _trace,
        "unknown": _trace,
    }
    return advices[cause](options)


def shared_cores(neighbours: str, means: Mapping[str, float] = NO_MEANS) -> bool:
    """Whether co-tenants had a large share of the run's cores, by the tag `neighbours` or the samples' means."""
    return "cpu: " in neighbours or means.get("neighbours_cpu_percentage", 0.0) > LARGE_CO_TENANT_PERCENT


def alone_first(cause: str, suggestion: str, shared: bool) -> str:
    """The suggestion; after a run on a shared machine, a run on cores of its own comes before it."""
    if not shared or cause == "neighbours":
        return suggestion
    return f"{ALONE}, since other processes had a large share of them; then {suggestion}"


def _against_waiting(options: RunOptions) -> str:
    if not options.ours:
        return "more loading processes: DataLoader(num_workers=...), or data that is quicker to read"
    if options.dataset in DECODED_DATASETS:
        return "more decoding threads: a larger dataset.num_threads, as far as there are cores"
    return f"more cores, or a larger {options.step_key}, so that there are fewer batches to make"


def _against_traffic(options: RunOptions) -> str:
    if options.precision not in HALF_PRECISIONS:
        return _narrower(options, "")
    return "a GPU with quicker memory" if options.compiled else _compile(options)


def _narrower(options: RunOptions, otherwise: str) -> str:
    if options.precision in HALF_PRECISIONS:
        return otherwise
    return "precision=bf16" if options.ours else "a narrower precision: bf16"


def _compile(options: RunOptions) -> str:
    return "compile=true" if options.ours else "torch.compile, which makes fewer and larger kernels"


def _larger_batch(options: RunOptions, purpose: str, otherwise: str = "") -> str:
    """A larger batch, with the size that fits if it is known; `otherwise`, or a trace, if no larger one fits."""
    fits, key = options.batch_that_fits(), options.batch_key
    if fits is None:
        return f"a larger {key}, {purpose}"
    if fits == options.batch_size:
        return otherwise or _trace(options)
    took = f"{options.batch_size} took {options.memory_percent:.0f} % of the GPU's memory"
    return f"a larger batch, {purpose}: up to {key}={fits} fits, since {took}"


def _fewer_exchanges(options: RunOptions) -> str:
    purpose = "so that fewer steps exchange gradients"
    if options.batch_key != "batch_size":  # a step holds only a part of the batch, so a larger one needs no memory
        return f"a larger {options.step_key}, {purpose}"
    return _larger_batch(options, purpose, "fewer GPUs, or quicker links between them")


def _trace(options: RunOptions) -> str:
    return "a trace of the kernels" + (": profile.steps=20" * options.ours)


def _another_stack(cause: str, stack: QuickerStack | None) -> str:
    if stack is None or cause not in STACK_CAUSES:
        return ""
    return (
        f"; or stack={stack.name}, on which {stack.num_runs} runs of the same trained {stack.factor:.2f} times as fast"
    )


def _with_slow_rank(cause: str, suggestion: str, slow_cause: str) -> str:
    """The advice against the slow rank alone if the rank is the limit, else after that against a larger limit."""
    against = AGAINST_SLOW_RANK[slow_cause]
    if cause in ("imbalance", "unknown"):
        return against
    return suggestion if slow_cause == cause else f"{suggestion}; then {against}"


AGAINST_SLOW_RANK = {
    "data": "the data and the loader of that rank first, since the others wait for it",
    "gc": "gc.freeze() on that rank before the training",
    "queued": "that rank on cores of its own: end the other processes there, or keep them off (taskset, a cpuset)",
    "quota": "a larger quota of cores for that rank's container",
    "blocked": "what that rank waits for outside its loader: py-spy dump --pid shows it",
    "co-tenant": "a GPU of its own for that rank: end the other process, or choose another GPU",
    "power": "a higher power limit for that GPU: see nvidia-smi -q -d POWER,PERFORMANCE",
    "thermal": "better cooling of that GPU: see nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
    "clock": "the clocks of that GPU: see nvidia-smi -q -d CLOCK,PERFORMANCE",
    "ecc": "another GPU for that rank: see nvidia-smi -q -d ECC",
    "links": "another slot or GPU for that rank: see nvidia-smi -q | grep -A3 Link",
    "host": "that rank's host: its cores, its NUMA node, what else runs there",
    "samples": "batches of one size for all ranks, as a DistributedSampler or packing makes them",
    "computing": "the same work for all ranks: check what else that rank does, and how long its samples are",
}


def lines(
    cause: str, words: str, clock: Clock, means: Mapping[str, float], options: RunOptions, slow: Mapping[str, Any],
    neighbours: str = "", quicker: QuickerStack | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The cause with `words`, `why` and `next` for a run's result; `shared_cores` if co-tenants had a large share.

    `slow` is the rank that the others wait for, or {}. `neighbours` is that tag. `quicker` is a stack that trained the
    same faster.
    """
    evidence = why(cause, clock, means)
    if cause == "neighbours" and neighbours:
        evidence += f" ({neighbours})"
    suggestion = first_try(cause, options) + _another_stack(cause, quicker)
    if slow and cause in ("data", "gc", "imbalance", "exchange", "processor", "unknown"):
        evidence = "; ".join(filter(None, (evidence, slow["words"])))
        suggestion = _with_slow_rank(cause, suggestion, slow["cause"])
    shared = shared_cores(neighbours, means)
    suggestion = alone_first(cause, suggestion, shared)
    verdict = {"cause": cause, "words": words, "why": evidence, "next": suggestion}
    return verdict | ({"shared_cores": True} if shared else {})
