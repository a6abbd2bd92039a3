"""The evidence for a run's limit, and what to try first against it. Pure functions of the run's measurements.

Advice names an option that this run has not used yet, or if all are used, what else would help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracking.measure.bottleneck.time_shares import Clock

HALF_PRECISIONS = ("bf16", "fp16", "fp8")
LARGE_CO_TENANT_PERCENT = 10.0  # a share of the cores from which co-tenants are named, as by the tag `neighbours`
ALONE = "run it again on cores of its own"  # what comes before any advice after a shared machine
NO_MEANS: Mapping[str, float] = MappingProxyType({})
DECODED_DATASETS = ("shapes", "imagenet", "coco")  # datasets decoded by `dataset.num_threads` threads


@dataclass(frozen=True)
class RunOptions:
    """A run's options, from its params. `ours`: timetrial trains, not a user's script or program."""

    ours: bool
    precision: str
    compiled: bool
    dataset: str = ""

    @staticmethod
    def of(params: Mapping[str, str]) -> RunOptions:
        compiled = params.get("compile") == "True"  # a script does not say
        return RunOptions("compile" in params, params.get("precision", ""), compiled, params.get("dataset", ""))


def why(cause: str, clock: Clock, means: Mapping[str, float]) -> str:
    """The measurement behind a limit, in words; "" for an unknown cause."""

    def percent(key: str) -> str:
        return f"{means.get(f'gpu_{key}_percentage', 0.0):.0f} %"

    words: dict[str, Callable[[], str]] = {
        "data": lambda: f"steps waited {clock.data or 0.0:.3g} s for their batches, on the process that waited most",
        "host": lambda: f"the GPU's engines worked in {percent('engine_activity')} of the training",
        "exchange": lambda: f"the exchanges of gradients took {clock.exchange or 0.0:.3g} s",
        "evaluation": lambda: f"evaluations took {clock.evaluation:.3g} of {clock.total:.3g} s",
        "checkpoint": lambda: f"checkpoints took {clock.checkpoint:.3g} of {clock.total:.3g} s",
        "dram": lambda: f"the GPU's memory was busy in {percent('dram_bandwidth')} of the cycles",
        "tensor": lambda: f"the tensor cores were busy in {percent('tensor_activity')} of the cycles",
        "fp32": lambda: f"the fp32 cores were busy in {percent('fp32_activity')} of the cycles",
        "power": lambda: f"the clock was at {percent('sm_clock')} of its highest",
        "kernels": lambda: (
            f"kernels ran in {percent('engine_activity')} of the training, and kept {percent('sm_activity')} of the "
            "multiprocessors busy"
        ),
        "gc": lambda: f"Python's garbage collection took {clock.gc or 0.0:.3g} s on the process where it took most",
        "imbalance": lambda: f"the other ranks waited {clock.imbalance or 0.0:.3g} s for one in the exchange",
        "selfplay": lambda: f"self-play took {clock.phases.get('selfplay', 0.0):.3g} of {clock.total:.3g} s",
        "gate": lambda: f"matches of the gate took {clock.phases.get('gate', 0.0):.3g} of {clock.total:.3g} s",
        "update": lambda: f"updates of the weights took {clock.update or 0.0:.3g} of {clock.total:.3g} s",
        "processor": lambda: f"the run kept {means.get('run_cpu_percentage', 0.0):.0f} % of the cores busy",
        "neighbours": lambda: f"others had {means.get('neighbours_cpu_percentage', 0.0):.0f} % of the run's cores",
    }
    return words[cause]() if cause in words else ""


def first_try(cause: str, options: RunOptions) -> str:
    """What to try first against a limit, as an option to type if there is one."""
    advices: dict[str, Callable[[RunOptions], str]] = {
        "data": _against_waiting,
        "host": lambda run: "a larger batch_size, so that each step has more work" if run.compiled else _compile(run),
        "exchange": lambda _: "a larger batch_size, so that fewer steps exchange gradients",
        "evaluation": lambda run: "fewer evaluations" + (": a larger eval_every_steps, or eval_at_epochs" * run.ours),
        "checkpoint": lambda run: "fewer checkpoints" + (": a larger checkpoint_every_steps" * run.ours),
        "dram": _against_traffic,
        "tensor": lambda run: _narrower(run, "more GPUs, or quicker ones: the cores that multiply are the limit"),
        "fp32": lambda run: _narrower(run, "more GPUs, or quicker ones"),
        "power": lambda _: "a higher power limit, or better cooling: see nvidia-smi -q -d POWER,PERFORMANCE",
        "kernels": lambda run: "a larger batch_size, so that kernels fill the GPU" if run.compiled else _compile(run),
        "gc": lambda _: "gc.freeze() before the training, or gc.disable() and gc.collect() every few hundred steps",
        "imbalance": lambda _: "what the slow rank does differently: see its cause",
        "selfplay": lambda _: (
            "more GPUs, or a larger model.hparams.games_at_once: each evaluation takes more positions"
        ),
        "gate": lambda _: "fewer games or readouts of the gate: model.hparams.gate_games, match_readouts",
        "update": lambda _: "a larger batch_size, so that fewer steps update the weights",
        "processor": lambda run: f"a GPU{' (gpus=1)' * run.ours}, or more cores",
        "neighbours": lambda _: f"{ALONE}: end the other processes, or keep them off (taskset, a scheduler's cpuset)",
        "unknown": lambda run: "a trace of the kernels" + (": profile.steps=20" * run.ours),
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
    return "more cores, or a larger batch_size, so that there are fewer batches to make"


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


AGAINST_SLOW_RANK = {
    "data": "the data and the loader of that rank first, since the others wait for it",
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
    neighbours: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The cause with `words`, `why` and `next` for a run's result; `shared_cores` if co-tenants had a large share.

    `slow` is the rank that the others wait for, or {}. `neighbours` is that tag.
    """
    evidence = why(cause, clock, means)
    if cause == "neighbours" and neighbours:
        evidence += f" ({neighbours})"
    suggestion = first_try(cause, options)
    if slow and cause in ("data", "gc", "imbalance", "exchange", "processor", "unknown"):
        evidence = "; ".join(filter(None, (evidence, slow["words"])))
        suggestion = AGAINST_SLOW_RANK.get(slow["cause"], suggestion) if cause != "data" else suggestion
    shared = shared_cores(neighbours, means)
    suggestion = alone_first(cause, suggestion, shared)
    verdict = {"cause": cause, "words": words, "why": evidence, "next": suggestion}
    return verdict | ({"shared_cores": True} if shared else {})
