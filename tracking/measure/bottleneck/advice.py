"""The evidence for a run's limit, and what to try first against it. Pure functions of the run's measurements.

Advice names an option that this run has not used yet, or if all are used, what else would help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tracking.base.number_text import significant
from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.measure.bottleneck.run_options import HPARAMS, RunOptions
from tracking.measure.bottleneck.slow_rank import AGAINST_SLOW_RANK
from tracking.measure.bottleneck.time_shares import OWN, Clock

LARGE_CO_TENANT_PERCENT = 10.0  # co-tenants with a larger share of the cores are named, as in the tag `neighbours`
ALONE = "run it again on cores of its own"  # comes before other advice if the machine was shared
NO_MEANS: Mapping[str, float] = MappingProxyType({})
STACK_CAUSES = (
    "host",
    "dram",
    "tensor",
    "fp32",
    "kernels",
    "latency",
    "processor",
    "unknown",
)  # causes that the kernels of another stack may change
DECODED_DATASETS = ("shapes", "imagenet", "coco")  # datasets decoded by `dataset.num_threads` threads
SHORT_STEP_SEC = 0.05  # on CPUs: steps below it spend much of their time on starting each operator


def why(cause: str, clock: Clock, means: Mapping[str, float]) -> str:
    """The measurement behind a limit, in words; "" for an unknown cause."""

    def percent(key: str) -> str:
        return f"{means.get(f'gpu_{key}_percentage', 0.0):.0f} %"

    def of_total(seconds: float | None) -> str:
        return f"{significant(seconds or 0.0)} of {significant(clock.total)} s"

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
        "host": _fewer_launches,
        "exchange": _fewer_exchanges,
        "evaluation": _fewer_evaluations,
        "checkpoint": _fewer_checkpoints,
        "dram": _against_traffic,
        "tensor": lambda run: _narrower(run, f"{_eighth(run)}more GPUs, or quicker ones"),
        "fp32": lambda run: _narrower(run, "more GPUs, or quicker ones"),
        "power": lambda _: "a higher power limit, or better cooling: see nvidia-smi -q -d POWER,PERFORMANCE",
        "kernels": lambda run: _larger_batch(run, "so that kernels fill the GPU") if run.compiled else _compile(run),
        "gc": lambda _: "gc.freeze() before the training, or gc.disable() and gc.collect() every few hundred steps",
        "imbalance": lambda _: "what the slow rank does differently: its run's table names it and its cause",
        "selfplay": lambda run: " or ".join(filter(None, (_more_games(run), _more_devices(run)))),
        "gate": lambda _: "fewer readouts or games of the gate: model.hparams.match_readouts, model.hparams.gate_games",
        "update": lambda run: _larger_step(run, "so that fewer steps update the weights") or _trace(run),
        "processor": _against_computing,
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
    if options.dataset not in DECODED_DATASETS:
        larger = _larger_step(options, "so that there are fewer batches to make")
        return " or ".join(filter(None, (larger, "more cores")))
    if options.more_threads:
        return f"more decoding threads: dataset.num_threads={options.more_threads}, as by default on these cores"
    if options.config and options.config.dataset.decode == "cpu" and options.on_gpu:
        return "dataset.decode=gpu, or more cores: the threads that decode have almost all of them"
    return "more cores, since the threads that decode have almost all of them; or smaller image files"


def _fewer_launches(options: RunOptions) -> str:
    if options.ours and not options.compiled:
        return _compile(options)
    if options.params.get(f"{HPARAMS}graph_steps") == "False":
        return "model.hparams.graph_steps=true, so that a step is launched as a whole"
    return _larger_batch(options, "so that each step has more work") if options.ours else _compile(options)


def _fewer_evaluations(options: RunOptions) -> str:
    if options.num_evaluations == 1:
        return "a quicker evaluation, since the run made only one; or more training beside it"
    return "fewer evaluations" + (f": {options.fewer_evaluations}" if options.ours else "")


def _fewer_checkpoints(options: RunOptions) -> str:
    keys = [f"checkpoint_every_{unit}" for unit in ("steps", "epochs")]
    config = options.config
    larger = " or ".join(key for key in keys if config is None or getattr(config, key) is not None)
    return "fewer checkpoints" + (f": a larger {larger}" if options.ours and larger else "")


def _against_traffic(options: RunOptions) -> str:
    return _narrower(options, "a GPU with quicker memory" if options.compiled else _compile(options))


def _narrower(options: RunOptions, otherwise: str) -> str:
    if options.in_half_precision:
        return otherwise
    if options.precision == OWN:
        return f"a narrower precision, such as bf16, if it is not narrow already; then {otherwise}"
    return "precision=bf16" if options.ours else "a narrower precision: bf16"


def _eighth(options: RunOptions) -> str:
    """The advice of fp8, if the model has layers for it; else ""."""
    has_layers = options.config is not None and options.config.model.fp8 and options.precision != "fp8"
    return "precision=fp8, if the network is large; or " if options.ours and has_layers else ""


def _compile(options: RunOptions) -> str:
    return "compile=true" if options.ours else "torch.compile, which makes fewer and larger kernels"


def _larger_batch(options: RunOptions, purpose: str, otherwise: str = "") -> str:
    """More samples at once, with the number that fits if it is known; `otherwise`, or a trace, if no more fit."""
    if f"{HPARAMS}games_at_once" in options.params:  # MiniGo plays for most of its time.
        return _more_games(options) or _trace(options)
    fits, key = options.largest_held(), options.held_key
    if fits is None:
        return f"a larger {key}, {purpose}" if options.can_hold_more else otherwise or _trace(options)
    if fits == options.held:
        return otherwise or _trace(options)
    took = f"{options.held} took {options.memory_percent:.0f} % of the GPU's memory"
    return f"a larger batch, {purpose}: up to {key}={fits} fits, since {took}"


def _larger_step(options: RunOptions, purpose: str) -> str:
    """More samples a step; "" if the data has no more."""
    return f"a larger {options.step_key}, {purpose}" if options.has_larger_step else ""


def _fewer_exchanges(options: RunOptions) -> str:
    purpose = "so that fewer steps exchange gradients"
    otherwise = f"fewer {'GPUs' if options.on_gpu else 'processes'}, or quicker links between them"
    if options.is_split:  # a step holds only a part of the batch, so a larger one needs no memory
        return _larger_step(options, purpose) or otherwise
    return _larger_batch(options, purpose, otherwise)


def _more_games(options: RunOptions) -> str:
    """More of MiniGo's games at once; "" if all games of a generation are played at once already."""
    most = -(-options.number(f"{HPARAMS}games") // options.devices)
    if options.number(f"{HPARAMS}games_at_once") >= most:
        return ""
    return f"a larger model.hparams.games_at_once, up to {most}: each evaluation takes more positions"


def _more_devices(options: RunOptions) -> str:
    if options.on_gpu:
        return "more GPUs"
    number = options.devices if options.params.get("strategy") == "fsdp" else 1  # a sharded model needs several
    words = f"gpus={number}" + " cpu_processes=1" * (options.number("cpu_processes") > 1)
    return f"a GPU ({words})" if options.ours else "a GPU"


def _against_computing(options: RunOptions) -> str:
    """More devices or cores. First larger steps if they are short: starting operators takes as long for any batch."""
    is_short = 0 < options.step_sec < SHORT_STEP_SEC
    larger = _larger_step(options, f"since a step takes only {1e3 * options.step_sec:.2g} ms") if is_short else ""
    return "; then ".join(filter(None, (larger, f"{_more_devices(options)}, or more cores")))


def _trace(options: RunOptions) -> str:
    if options.ours and options.config is not None and options.config.profiled():
        return "the largest kernels and gaps of its trace: profile.json"
    return "a trace of the kernels" + (": profile.steps=20" * options.ours)


def _another_stack(cause: str, stack: QuickerStack | None) -> str:
    if stack is None or cause not in STACK_CAUSES:
        return ""
    return (
        f"; or stack={stack.name}, on which {stack.num_runs} runs of the same trained {stack.factor:.2f} times as fast"
    )


def _with_slow_rank(cause: str, suggestion: str, slow_cause: str) -> str:
    """The advice against the slow rank: alone if the rank is the limit, else after that against the limit.

    If both have the same cause, the advice against the limit alone.
    """
    against = AGAINST_SLOW_RANK[slow_cause]
    if cause in ("imbalance", "unknown"):
        return against
    return suggestion if slow_cause == cause else f"{suggestion}; then {against}"


def lines(
    cause: str, words: str, clock: Clock, means: Mapping[str, float], options: RunOptions, slow: Mapping[str, Any],
    neighbours: str = "", quicker: QuickerStack | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The cause with `words`, `why` and `next` for a run's result; `shared_cores` if co-tenants had a large share.

    `slow` is the rank that the others wait for, or {}. `neighbours` is the tag. `quicker` is a stack that trained the
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
