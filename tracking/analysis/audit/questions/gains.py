"""Recompute gains of precisions, gaps between runs, N jobs of one device against one of N, and traffic over nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracking.analysis.audit.arithmetic import Moments, Observations, moments_of, text_of
from tracking.analysis.audit.evidence import DEVICES, Content, Evidence, Labels, Rows, That, mean_of, name_of
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.audit.questions.asked_tables import clock_text, gain_of
from tracking.base import quantities

TIME = quantities.TIME_TO_ACCURACY_SEC
HARDWARE = {*DEVICES, "env.gpu", "env.hardware_id", "env.topology", "env.cpu", "env.node", "hardware", "topology"}
GAINS = {
    quantities.MEMORY_PEAK_ALLOCATED_BYTES: ("peak memory (GB)", "times less memory than fp32", 1e-9),
    TIME: ("time to accuracy (s)", "times less time than fp32", 1.0),
    quantities.ENERGY_TO_ACCURACY_JOULES: ("energy to accuracy (kJ)", "times less energy than fp32", 1e-3),
}
STORAGE, NETWORK = ("disk_", "network_files_"), ("network_", "infiniband_")
MOVED = {"storage": STORAGE, "network": NETWORK}
OF_TRAFFIC = {"total (MB)": "_total_megabytes", "peak (MB/s)": "_peak_megabytes_per_sec"}


def gains(content: Content) -> Rows:
    evidence, rows = content.evidence, Rows()
    pairs = [
        (workload, setting, {**setting, "precision": "fp32"})
        for workload in evidence.workloads()
        for setting in evidence.settings(workload)
        if {**setting, "precision": "fp32"} in evidence.settings(workload) and "precision" in setting
    ]
    shown = [key for key in GAINS if any(evidence.values(workload, setting, key) for workload, setting, _ in pairs)]
    for workload, setting, base in pairs if {*shown} - {TIME} else ():
        row: Rows = {"workload": workload, "setting": name_of(setting)}
        for key in shown:
            heading, over, scale = GAINS[key]
            row[heading] = mean_of(evidence.sample(workload, setting, key), scale, key)
            row[over] = gain_of(evidence, workload, setting, base, key)
        rows[f"{workload} {name_of(setting)}"] = row
    return rows


def gaps(content: Content) -> Rows:
    evidence, rows, metric = content.evidence, Rows(), content.evidence.metric
    for workload in evidence.workloads():
        groups: dict[str, dict[str, Observations]] = {}  # by hardware, then by the other axes
        for setting in evidence.settings(workload):
            sample = evidence.sample(workload, setting, metric)
            if len(sample):
                group, rest = ({axis: value for axis, value in setting.items() if (axis in HARDWARE) is wanted}
                             for wanted in (True, False))  # fmt: skip
                groups.setdefault(name_of(group) if group else "", {})[name_of(rest) if rest else ""] = sample
        for on, samples in groups.items():
            sets = {name: sample.numbers for name, sample in samples.items() if not sample.num_short}
            every = sorted(number for numbers in sets.values() for number in numbers)
            if len(sets) < 2 or len(every) == len(sets) or every[0] <= 0:
                continue
            means = {name: math.fsum(numbers) / len(numbers) for name, numbers in sets.items()}
            low, high = (choose(means, key=means.__getitem__) for choose in (min, max))
            row: Rows = {"workload": workload, "on": on, "settings": f"{len(sets)}"}
            row |= {"settings": f"{len(sets)} of {len(samples)}"} if len(sets) < len(samples) else {}
            row |= {"smallest mean": _as_far_as(means, low), "largest mean": _as_far_as(means, high)}
            row["gap of means"] = f"{100 * (means[high] / means[low] - 1):.1f} %"
            rows[f"{workload} {on}"] = row | {"gap of single runs": f"{100 * (every[-1] / every[0] - 1):.1f} %"}
    return rows


def _as_far_as(means: Mapping[str, float], name: str) -> That:
    """Accepts the settings with the same mean as the named one, up to rounding."""
    same = [other for other, mean in means.items() if math.isclose(mean, means[name], rel_tol=1e-9)]
    return That(lambda text: text in same, " or ".join(same))


def jobs(content: Content) -> Rows:
    evidence, rows = content.evidence, Rows()
    for workload in evidence.workloads():
        settings = evidence.settings(workload)
        for setting in settings:
            base, devices = evidence.base(workload, setting, settings), evidence.devices(workload, setting)
            if base is None or evidence.devices(workload, base) != 1 or not devices or devices == 1:
                continue
            own, alone = (evidence.sample(workload, each, TIME) for each in (setting, base))
            moments, single = moments_of(own), moments_of(alone)
            if moments is None or single is None or own.num_short or alone.num_short:
                continue
            first, up_to = _first(moments, single, devices)
            name = name_of(setting)
            rows[f"{workload} {name} {devices:.0f}"] = {
                "workload": workload, "setting": name, "devices": f"{devices:.0f}",
                "jobs at once": clock_text((single[0], single[1], None, None), ""),
                "one after the other": clock_text((moments[0], devices * moments[1], None, None), ""),
                "first": first, "of up to N trainings, one job is first up to": up_to,
            }  # fmt: skip
    return rows


def _first(moments: Moments, single: Moments, devices: float) -> tuple[str, str]:
    factor = single[1] / moments[1]
    if moments[2] is not None and single[2] is not None:
        error = factor * math.hypot(moments[2] / moments[1], single[2] / single[1])
        if abs(factor - devices) <= 2 * error:
            return "cannot be told", ""
    return ("one job", "any number") if factor > devices else ("jobs at once", str(max(0, math.floor(factor - 1e-9))))


def traffic(content: Content) -> Rows:
    evidence, rows = content.evidence, Rows()
    for workload in evidence.workloads():
        of_rest: dict[str, dict[int, Labels]] = {}
        for setting in evidence.settings(workload):
            counts = {str(run.params.get("nodes", "")) for run in evidence.ended(workload, setting).values()}
            if len(counts) == 1 and (count := counts.pop()).isdecimal():
                rest = name_of({axis: value for axis, value in setting.items() if axis != "nodes"})
                of_rest.setdefault(rest, {})[int(count)] = setting
        for of_nodes in of_rest.values():
            for nodes, setting in sorted(of_nodes.items()) if len(of_nodes) > 1 else ():
                fewest = min(of_nodes)
                row = _traffic(evidence, workload, setting, of_nodes[fewest], math.log2(nodes / fewest))
                rest_names = {axis: value for axis, value in setting.items() if axis != "nodes"}
                name = name_of(rest_names) if rest_names else ""
                about = {"workload": workload, "setting": name, "nodes": str(nodes)}
                rows[f"{workload} {about['setting']} {nodes}"] = about | row
    about_all = {"workload", "setting", "nodes"}
    has_traffic = any(cell for row in rows.values() for key, cell in row.items() if key not in about_all)
    return rows if has_traffic else {}


def _traffic(evidence: Evidence, workload: str, setting: Labels, fewest: Labels, doublings: float) -> Rows:
    row: Rows = {}
    for kind, names in MOVED.items():
        for words, ending in OF_TRAFFIC.items():
            both = ([*evidence.ended(workload, each).values()] for each in (setting, fewest))
            moved, first = (Observations(_sums(runs, names, ending)) for runs in both)
            moments, base = moments_of(moved), moments_of(first)
            row[f"{kind} {words}"] = text_of(moments[1], moments[2], None) if moments else ""
            grown = doublings and moments and base and moments[1] > 0 and base[1] > 0
            factor = (moments[1] / base[1]) ** (1 / doublings) if grown and moments and base else 0.0
            row[f"{kind} {words}, doubling"] = f"{factor:.2f}" if grown else ""
    return row


def _sums(runs: Sequence[JournalFigures], names: Sequence[str], ending: str) -> list[float]:
    sums = []
    for run in runs:
        bytes_moved = [
            float(value)
            for key, value in run.merged("metrics").items()
            if key.startswith(quantities.TRAFFIC) and key.endswith(ending) and _of(key.rpartition("/")[2], names)
        ]
        sums += [math.fsum(bytes_moved)] if bytes_moved else []
    return sums


def _of(name: str, names: Sequence[str]) -> bool:
    """Whether a counter is one of `names`. Network files count as storage only, not as network."""
    if name.startswith("network_files_"):
        return "network_files_" in names
    return name.startswith(tuple(each for each in names if each != "network_files_"))
