"""Confounding: differences between compared runs besides the axes that they are compared by."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from conf.dataset_options import LANGUAGE_OPTIONS
from tracking.analysis.compare.axis_values import Values
from tracking.analysis.compare.eval_intervals import PARAMS, uneven
from tracking.analysis.compare.grouping import DEVICES, Task
from tracking.analysis.results import NONE, REPEATS, TASK, Run, Runs, words
from tracking.base import quantities
from tracking.base.installation import TRACKING
from tracking.base.number_text import counted, verb
from tracking.request.node_options import JOBS_AT_ONCE

WITH_NEIGHBOURS = "--with-neighbours"  # compares runs that shared a machine with runs that did not
MOST_FILES = 60  # runs whose config.yaml and fingerprint.json are read, by one request each
FIND_IT = f"`{TRACKING} sync --again FOLDER` uploads it if the run's folder has it; else repeat the run"
IGNORED = {
    "config_hash",
    "sweep",
    "git.dirty",
    "env.stack_id",
    "env.hardware_id",
    "eval_interval",
    "data.entropy",
    "data.bytes_per_token",
    *REPEATS,
    *TASK,
    *PARAMS,
}  # hashes repeat the rest
# Keys of config.yaml that are not params.
CONFIG_KEYS = ("dataset.", "stack.env.", "stop_at_target", "log_every_n_steps")
GPU_KEYS = (
    "power_limit_watts", "application_sm_clock_mhz", "application_memory_clock_mhz", "max_sm_clock_mhz",
    "max_memory_clock_mhz", "memory_bytes", "ecc", "mig", "vbios",
)  # fmt: skip
# Figures with the hosts' energy, if it is known.
KWH = (
    quantities.ENERGY_KWH, quantities.ENERGY_TO_ACCURACY_KWH, quantities.ENERGY_CO2_GRAMS,
    quantities.ENERGY_TO_ACCURACY_CO2_GRAMS,
)  # fmt: skip
AFFINITY = "env.affinity"  # older runs lack it
BY_DEVICES = {
    *DEVICES, "global_batch_size", "optimizer/learning_rate", "env.gpu_count", "env.topology", AFFINITY,
    "environment.OMP_NUM_THREADS",  # processes share the cores (trainers/loop/worker/agent.py)
}  # fmt: skip
# By axis, the keys that change with it. They do not confound.
FOLLOWS = {
    **{f"dataset.{key}": {"data.version"} for key in ("path", "size", "year", *LANGUAGE_OPTIONS)},
    "gpus": BY_DEVICES,
    "nodes": BY_DEVICES,
    "cpu_processes": BY_DEVICES,
    "batch_size": {"global_batch_size", "optimizer/learning_rate"},
    "global_batch_size": {"batch_size", "optimizer/learning_rate"},
    "optimizer/lr": {"optimizer/learning_rate"},
    "optimizer/lr_scaling": {"optimizer/learning_rate"},
    "stack": {f"env.{key}" for key in ("driver", "cuda", "cudnn", "nccl", "torch", "python", "image")},
    "env.image": {"stack", *(f"env.{key}" for key in ("cuda", "cudnn", "nccl", "torch", "python"))},
    "env.stack_id": {"stack", *(f"env.{key}" for key in ("driver", "cuda", "cudnn", "nccl", "torch", "image"))},
    "env.driver": {"env.node"},  # a driver is changed by a reboot or by another machine
    "env.gpu": {"instance", "env.node", AFFINITY, *GPU_KEYS},
    "instance": {"env.node", "env.gpu", "env.cpu", "env.topology", AFFINITY, *GPU_KEYS},
    "env.node": {"instance"},
}


def warnings(
    task: Task, axes: Sequence[str], store: Runs, values: Values, progress: Callable[[], None] = lambda: None
) -> list[str]:
    """A sentence for each unexpected difference between a figure's runs, and for what cannot be compared."""
    follows = {key for axis in axes for key in (values.key(axis), axis, *following(values.key(axis)))}
    settings = {setting.name: setting.trained for setting in task.settings}
    return [f"{task.title}: {sentence}" for sentence in differences(settings, follows, store, values, progress)]


def following(axis: str) -> Collection[str]:
    variable = axis.removeprefix("stack.env.")
    return FOLLOWS.get(axis, ()) if variable == axis else {f"environment.{variable}"}


def differences(
    settings: Mapping[str, Sequence[Run]], follows: Collection[str], store: Runs, values: Values,
    progress: Callable[[], None] = lambda: None,
) -> list[str]:  # fmt: skip
    """The sentences of `warnings` for any settings, by name. `follows` are the keys in which they may differ."""
    runs = [run for members in settings.values() for run in members]
    allowed = IGNORED.union(follows)
    where = {run.id: name for name, members in settings.items() for run in members}
    rows = {run.id: _recorded(run) for run in runs}
    sentences = [_difference(key, spread, where) for key, spread in _differing(rows) if key not in allowed]
    sentences += [*uneven(settings), *other_energy(settings)]
    dirty = [run for run in runs if run.tags.get("git.dirty") == "true"]
    if dirty:
        share = f"{len(dirty)} of {counted(len(runs), 'run')} {verb('are', len(dirty))}"
        sentences.append(f"{share} of code with uncommitted changes (git.dirty)")
    if shared_runs := [run for run in runs if "neighbours" in run.tags]:
        others = _abridged([f"{run.name}: {run.tags['neighbours']}" for run in shared_runs], "; ")
        sentences.append(
            f"{len(shared_runs)} of {counted(len(runs), 'run')} shared cores or GPUs with other programs ({others})"
        )
    sampled = sample(settings, MOST_FILES)
    files = {}
    for run in sampled:
        files[run.id] = _in_files(run, store, values)
        progress()
    damaged = [run for run in sampled if run.id in values.damaged]
    files = {id: content for id, content in files.items() if id not in values.damaged}
    sentences += [_difference(key, spread, where) for key, spread in _differing(files) if key not in allowed]
    sentences += _unknown(runs, [run for run in sampled if run.id in files], files)
    if damaged:
        names = _abridged([run.name for run in damaged], "; ")
        sentences.append(f"config.yaml of {counted(len(damaged), 'run')} is damaged, and was not compared ({names})")
    if sentences and len(sampled) < len(runs):
        sentences.append(f"config.yaml and fingerprint.json were read for {len(sampled)} of {len(runs)} runs")
    return sentences


def other_energy(settings: Mapping[str, Sequence[Run]]) -> list[str]:
    """A sentence if the kWh of some runs are with their hosts' energy, and those of others without."""
    known = [(name, run) for name, runs in settings.items() for run in runs if any(key in run.metrics for key in KWH)]
    hosts, none = ([name for name, run in known if (quantities.ENERGY_HOST_JOULES in run.metrics) is has]
                   for has in (True, False))  # fmt: skip
    if not hosts or not none:
        return []
    with_hosts, without = (
        f"{counted(len(names), 'run')} ({_abridged(list(dict.fromkeys(names)), '; ')})" for names in (hosts, none)
    )
    return [
        f"kWh and CO2 include the hosts' energy in {with_hosts}, and not in {without}, so they do not compare;"
        f" {quantities.ENERGY_JOULES} is of the GPUs alone"
    ]


def _unknown(runs: Sequence[Run], sampled: Sequence[Run], files: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Sentences on runs whose hardware and environment are not known, with what to do about it."""
    sentences = []
    if blank := [run for run in runs if not has_environment(run)]:
        sentences.append(
            f"{_runs_have(blank, runs)} no env.* tags: GPU, driver and CUDA are not known. Next: leave these runs out,"
            " or "
            "repeat them"
        )
    if without := [run for run in sampled if "fingerprint" not in files[run.id]]:
        sentences.append(
            f"{_runs_have(without, sampled)} no fingerprint.json: clock limits, ECC and environment variables cannot "
            f"be compared; {FIND_IT}"
        )
    return sentences


def has_environment(run: Run) -> bool:
    """Whether the run's tags describe its hardware and software."""
    return any(key.startswith("env.") for key in run.tags)


def _runs_have(some: Sequence[Run], runs: Sequence[Run]) -> str:
    names = _abridged([run.name for run in some])
    return f"{len(some)} of {counted(len(runs), 'run')} ({names}) {verb('have', len(some))}"


def sample(settings: Mapping[str, Sequence[Run]], most: int) -> list[Run]:
    """Up to `most` runs: the first of every setting, then the second of every setting, and so on."""
    rounds = max(map(len, settings.values()), default=0)
    inner = (runs[at] for at in range(rounds) for runs in settings.values() if at < len(runs))
    return list(inner)[:most]


def _recorded(run: Run) -> dict[str, str]:
    tags = {key: value for key, value in run.tags.items() if key.startswith(("data.", "env.", "git."))}
    return {**run.params, **tags}


def _in_files(run: Run, store: Runs, values: Values) -> dict[str, str]:
    config = {key: value for key, value in values.config(run).items() if key.startswith(CONFIG_KEYS)}
    config.pop("dataset.name", None)
    try:
        content = json.loads(store.text(run, "fingerprint.json"))
    except (FileNotFoundError, ValueError):
        return config
    return config | _fingerprint(content)


def _fingerprint(content: Mapping[str, Any]) -> dict[str, str]:
    """Limits of the GPUs in use and environment variables, by key; `fingerprint` marks that the file was read."""
    used = {gpu.get("uuid") for gpu in content.get("used", [])}
    gpus = [gpu for gpu in content.get("gpus", []) if gpu.get("uuid") in used]
    rows = {
        key: " + ".join(sorted({str(gpu[key]) for gpu in gpus if key in gpu}))
        for key in GPU_KEYS
        if any(key in gpu for gpu in gpus)
    }
    return {"fingerprint": "read", **rows, **words({"environment": content.get("environment", {})})}


def _differing(rows: Mapping[str, Mapping[str, str]]) -> list[tuple[str, dict[str, list[str]]]]:
    """Each key in which runs differ, with its values and the ids of the runs that have each value."""
    spreads = []
    known = {name: row for name, row in rows.items() if any(key.startswith("env.") for key in row)}
    for key in sorted({key for row in rows.values() for key in row if key != "fingerprint"}):
        having = known if key.startswith("env.") else rows
        if key == AFFINITY or key.startswith(GPU_KEYS):
            having = {name: row for name, row in rows.items() if key in row}
        spread: dict[str, list[str]] = {}
        for run_id, row in having.items():
            spread.setdefault(row.get(key, NONE), []).append(run_id)
        if len(spread) > 1:
            spreads.append((key, spread))
    return spreads


def _difference(key: str, spread: Mapping[str, Sequence[str]], where: Mapping[str, str]) -> str:
    shown = []
    for value, ids in list(spread.items())[:4]:
        settings = list(dict.fromkeys(where[run_id] for run_id in ids))
        shown.append(f"{value} in {len(ids)} ({_abridged(settings, '; ')})")
    more = f" and {len(spread) - 4} more values" if len(spread) > 4 else ""
    return f"the runs differ in {key} too: {', '.join(shown)}{more}"


def _abridged(names: Sequence[str], between: str = ", ") -> str:
    return between.join(names[:3]) + (f"{between}and {len(names) - 3} more" if len(names) > 3 else "")


def shared(run: Run) -> bool:
    """Whether the run was one of several jobs that ran at once on purpose (sweep.jobs_at_once)."""
    return run.tags.get("neighbours", "").startswith(JOBS_AT_ONCE)


def comparable(runs: Sequence[Run]) -> tuple[list[Run], str]:
    """The runs whose speeds may be compared, and a sentence on the runs left out; "" if all are kept."""
    sharing = [run for run in runs if shared(run)]
    alone = [run for run in runs if not shared(run)]
    if not sharing or not alone:
        return list(runs), ""
    how = ", ".join(sorted({run.tags["neighbours"].partition(";")[0] for run in sharing}))
    return alone, (
        f"left out: {len(sharing)} of {len(runs)} runs, which shared their machine ({how}), unlike the others;"
        f" {WITH_NEIGHBOURS} includes them"
    )


def check_shared(baseline: Sequence[Run], candidate: Sequence[Run]) -> None:
    """Raise ValueError if some runs of the two sides shared their machine and others did not."""
    everything = [*baseline, *candidate]
    sharing = [run for run in everything if shared(run)]
    if sharing and len(sharing) < len(everything):
        raise ValueError(
            f"{len(sharing)} of {len(everything)} runs shared their machine ({sharing[0].name}:"
            f" {sharing[0].tags['neighbours']}), and the others did not, so their speeds do not compare. Next: name"
            f" runs of one kind, or give {WITH_NEIGHBOURS}"
        )
