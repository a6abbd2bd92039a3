"""The expected data of pictures of settings' means: shares, scaling, rates, stacks, costs and rooflines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tracking.analysis.audit.arithmetic import Observations, moments_of, ratio, tolerance
from tracking.analysis.audit.curves import CLOCK, Picture, first, identity, numbers
from tracking.analysis.audit.evidence import SHORT, Evidence, Labels, That, is_stack, name_of, observed
from tracking.analysis.audit.journals import FLOPS, INTENSITY, JournalFigures
from tracking.base import quantities

TIME, RATE = quantities.TIME_TO_ACCURACY_SEC, quantities.THROUGHPUT_SAMPLES_PER_SEC
COST, EPOCH = quantities.COST_TO_ACCURACY_USD, quantities.TIME_EPOCH_SEC
IN_TIME, IN_EPOCHS, TRAINED = "time to accuracy (s)", "time of an epoch (s)", "training time (s)"
MOST_BARS = 24
# The axes of a stack by their names in a legend.
NAMES = {"env.cuda": "CUDA", "env.torch": "PyTorch", "env.cudnn": "cuDNN", "env.nccl": "NCCL", "env.python": "Python",
         "env.framework": "framework"}  # fmt: skip
Point = tuple[float, float, float, str]  # x, the mean, its error, the sign of a bound


def reached(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """The share of runs that has reached the target over time, by Kaplan and Meier; and when others were given up."""
    workload, share = picture["workload"], "share that has reached the target (0 to 1)"
    steps, crosses = {}, {}
    for setting in evidence.settings(workload):
        sample = evidence.sample(workload, setting, TIME)
        if not len(sample):
            continue
        name = f"{name_of(setting)}: {evidence.share(workload, setting)}"
        rising = _kaplan_meier(sample)
        given_up = [(sec, max((y for x, y in rising if x <= sec), default=0.0)) for sec in sample.censored]
        steps[name] = _columns(rising)
        crosses[name] = _in_any_order(given_up)
    return {
        identity({"x": CLOCK, "y": share, "title": title}): {"key": TIME, "lines": first(lines)}
        for title, lines in (("", steps), ("given up", crosses))
    }


def _kaplan_meier(sample: Observations) -> list[tuple[float, float]]:
    """The share from each known time on; a run that diverged stays at risk to the end."""
    times = sample.bounds()
    share, rising = 1.0, []
    for time in sorted({*times}):
        at_risk, arrived = sum(other >= time for other in times), sum(number == time for number in sample.numbers)
        share *= 1 - arrived / at_risk
        rising.append((time, 1 - share))
    return rising


def _columns(points: Sequence[tuple[float, float]]) -> dict[str, That]:
    return {"x": numbers([x for x, _ in points]), "y": numbers([y for _, y in points], 1e-12)}


def _in_any_order(points: Sequence[tuple[float, float]]) -> That:
    def holds(claimed: Any) -> bool:
        ordered = [*zip(*sorted(zip(claimed["x"], claimed["y"], strict=True)), strict=True)] or [(), ()]
        expected = _columns(sorted(points))
        return claimed.keys() == expected.keys() and all(
            expected[key].holds(ordered[place]) for place, key in enumerate("xy")
        )

    return That(holds, str(points))


def scaling(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """Times and speed-ups over devices, of settings that are otherwise the same."""
    workload = picture["workload"]
    settings = evidence.settings(workload)
    key, unit = (TIME, IN_TIME) if _any(evidence, workload, TIME) else (EPOCH, IN_EPOCHS)
    lines: dict[str, dict[str, list[Point]]] = {unit: {}, "speed-up": {}}
    for setting in settings:
        base, devices = evidence.base(workload, setting, settings), evidence.devices(workload, setting)
        sample = evidence.sample(workload, setting, key)
        moments = moments_of(sample)
        if base is None or devices is None or moments is None:
            continue
        name = evidence.line_name(workload, setting) or workload
        _, mean, error, _ = moments
        lines[unit].setdefault(name, []).append((devices, mean, error or 0.0, sample.sign))
        if quotient := ratio(key, sample, evidence.sample(workload, base, key), 1.0, setting == base):
            (_, factor, off, _), sign = quotient
            lines["speed-up"].setdefault(name, []).append((devices, factor, off or 0.0, sign))
    expected = {}
    for y, of_settings in lines.items():
        longest = sorted(of_settings.items(), key=lambda item: -len(item[1]))
        curves = {name: line(sorted(points, key=itemgetter(0)), key) for name, points in longest if len(points) > 1}
        expected[identity({"x": "devices (number)", "y": y})] = {"key": key, "lines": first(curves)}
    return expected


def line(points: Sequence[Point], key: str) -> dict[str, Any]:
    """The expected line of a picture: numbers to the key's tolerance; errors and bounds if any point has one."""
    near = tolerance(key)
    xs, means, errors, signs = ([*column] for column in zip(*points, strict=True))
    expected: dict[str, Any] = {"x": numbers(xs), "y": _near(means, near)}
    expected |= {"error": _near(errors, 100 * near)} if any(errors) else {}
    bounds = {name: [each == sign for each in signs] for name, sign in (("at_least", "≥"), ("at_most", "≤"))}
    return expected | {name: column for name, column in bounds.items() if any(column)}


def _near(expected: Sequence[float], near: float) -> That:
    def holds(claimed: Any) -> bool:
        return len(claimed) == len(expected) and all(
            not isinstance(number, bool) and math.isclose(number, other, rel_tol=near, abs_tol=1e-12)
            for number, other in zip(claimed, expected, strict=True)
        )

    return That(holds, str(expected))


def _any(evidence: Evidence, workload: str, key: str) -> bool:
    return any(evidence.values(workload, setting, key) for setting in evidence.settings(workload))


def throughput(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    points = _means(evidence, picture["workload"], RATE)
    lines = first({name: line([point], RATE) for name, point in points.items()}, MOST_BARS)
    return {identity({"x": "", "y": "throughput (samples/s)"}): {"key": RATE, "lines": lines}}


def cost(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    return _over_time(evidence, picture, COST, "cost to accuracy (USD)")


def energy(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    return _over_time(evidence, picture, quantities.ENERGY_TO_ACCURACY_KWH, "energy to accuracy (kWh)")


def _over_time(evidence: Evidence, picture: Picture, key: str, label: str) -> dict[str, Any]:
    """The cost or energy of each setting over its time, and which of the two are bounds."""
    costs, times = (_means(evidence, picture["workload"], each) for each in (key, TIME))
    lines = {}
    for name, (_, amount, error, sign) in costs.items():
        if name in times:
            _, seconds, off, of_time = times[name]
            lines[name] = line([(seconds, amount, error, sign)], key) | ({"x_error": numbers([off])} if off else {})
            lines[name] |= {"x_at_least": [True]} if of_time else {}
    return {identity({"x": IN_TIME, "y": label}): {"lines": lines}}


def _means(evidence: Evidence, workload: str, key: str) -> dict[str, Point]:
    samples = {name_of(setting): evidence.sample(workload, setting, key) for setting in evidence.settings(workload)}
    return {name: point for name, sample in samples.items() if (point := _mean(sample))}


def _mean(sample: Observations, x: float = 0.0) -> Point | None:
    moments = moments_of(sample)
    return None if moments is None else (x, moments[1], moments[2] or 0.0, sample.sign)


def stacks(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """Times over drivers, which are at 0, 1, ... on x: a panel per model of GPU, a curve per stack."""
    workload = picture["workload"]
    key, label = (TIME, IN_TIME) if _any(evidence, workload, TIME) else (quantities.TIME_TRAIN_SEC, TRAINED)
    groups: dict[tuple[str, str, str], list[JournalFigures]] = {}
    for setting in evidence.settings(workload):
        for run in evidence.all_of(workload, setting).values():
            known = run.counts(with_missed=True) and run.value(key) is not None
            driver, curve = str(run.tags.get("env.driver") or ""), _curve_of(setting, run)
            if driver and curve and (known or (key == TIME and (run.stopped_short or run.stopped))):
                groups.setdefault((str(run.tags.get("env.gpu", "unknown GPU")), curve, driver), []).append(run)
    ticks = sorted({driver for _, _, driver in groups}, key=_version)
    panels: dict[str, dict[str, list[Point]]] = {}
    for (gpu, curve, driver), runs in groups.items():
        points = panels.setdefault(gpu, {}).setdefault(curve, [])
        points += [point] if (point := _mean(observed(runs, key), float(ticks.index(driver)))) else []
    return {
        identity({"x": "NVIDIA driver (version)", "y": label, "title": gpu}): {
            "key": key,
            "ticks": That(lambda claimed: claimed == ticks, str(ticks)),
            "lines": {name: line(sorted(points), key) for name, points in curves.items() if points},
        }
        for gpu, curves in panels.items()
    }


def _curve_of(setting: Labels, run: JournalFigures) -> str:
    """A run's curve: the stack's axes except the driver (if none, CUDA), and the other axes except the GPU."""
    named = {SHORT.get(axis, axis): value for axis, value in setting.items() if value != "(none)"}
    stack = [
        f"{NAMES.get(axis, axis)} {value}" for axis, value in named.items() if is_stack(axis) and axis != "env.driver"
    ]
    if not stack and "env.cuda" in run.tags:
        stack = [f"CUDA {run.tags['env.cuda']}"]
    rest = [f"{axis}={value}" for axis, value in named.items() if not is_stack(axis) and axis != "env.gpu"]
    return " ".join([*stack, *rest]) if stack else ""


def _version(name: str) -> list[tuple[int, float, str]]:
    """A sort key: 535.9 before 535.104."""
    parts = re.split(r"[.+_ -]", name)
    return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts]


def roofline(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """FLOP/s over FLOPs per byte: a panel of settings' means and one of their runs per model of GPU."""
    expected: dict[str, Any] = {}
    x, y = "model FLOPs for a byte of the GPU's memory", "model TFLOP/s of a device"
    workloads = evidence.workloads()
    for workload in workloads:
        for setting in evidence.settings(workload):
            name = f"{workload}: {name_of(setting)}" if len(workloads) > 1 else name_of(setting)
            for gpu, runs in _by_gpu(evidence.ended(workload, setting).values()).items():
                places = [(run.value(INTENSITY) or 0.0, (run.value(FLOPS) or 0.0) / 1e12) for run in runs]
                for title, drawn in ((gpu, _middle_of(places)), (f"{gpu}: runs", _unordered(places))):
                    panel = expected.setdefault(identity({"x": x, "y": y, "title": title}), {"lines": {}})
                    panel["lines"][name] = drawn
    return expected


def _by_gpu(runs: Iterable[JournalFigures]) -> Mapping[str, list[JournalFigures]]:
    by_gpu: dict[str, list[JournalFigures]] = {}
    for run in runs:
        if run.value(INTENSITY) is not None and run.tags.get("env.gpu", "none") != "none":
            by_gpu.setdefault(str(run.tags["env.gpu"]), []).append(run)
    return {
        gpu: members
        for gpu, members in by_gpu.items()
        if any((run.folder / "ceilings.json").exists() for run in members)
    }


def _middle_of(places: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The mean of the places, with an error on each axis if there are several."""
    moments = [moments_of(Observations([place[axis] for place in places])) for axis in (0, 1)]
    (_, x, x_error, _), (_, y, error, _) = (each for each in moments if each)
    expected = {"x": _near([x], 1e-6), "y": _near([y], 1e-6)}
    expected |= {"error": _near([error], 1e-4)} if error else {}
    return expected | ({"x_error": _near([x_error], 1e-4)} if x_error else {})


def _unordered(places: Sequence[tuple[float, float]]) -> That:
    def holds(claimed: Any) -> bool:
        drawn = sorted(zip(claimed["x"], claimed["y"], strict=True))
        columns = ([place[axis] for place in drawn] for axis in (0, 1))
        sorted_columns = ([place[axis] for place in sorted(places)] for axis in (0, 1))
        same = all(
            _near(expected, 1e-6).holds(column) for column, expected in zip(columns, sorted_columns, strict=True)
        )
        return claimed.keys() == {"x", "y"} and same

    return That(holds, str(places))
