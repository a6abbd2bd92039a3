"""What limited the runs, as a report prints it, against the journals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracking.audit import limits
from tracking.audit.evidence import Evidence, name_of
from tracking.audit.samples import EXACT, moments_of, says_mean

# The cause under each heading of what limited the runs.
NAMES = {
    "waiting for data (%)": "data",
    "the GPU without work from the host (%)": "host",
    "exchange of gradients (%)": "exchange",
    "evaluation (%)": "evaluation",
    "checkpoints (%)": "checkpoint",
    "traffic of the GPU's memory (%)": "dram",
    "tensor cores (%)": "tensor",
    "a clock that power or heat kept down (%)": "power",
    "the cores of the CPU (%)": "processor",
    "not known (%)": "unknown",
}


def limited(
    evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str, bool]]:
    """Of every setting of which a run counts, the shares of its time, and the largest of them."""
    workload, axes = table["about"], evidence.report["by"]
    for row in rows:
        setting = {axis: row[axis] for axis in axes}
        means: dict[str, float] = {}
        for heading, text in row.items():
            if heading in axes or heading == "limited by":
                continue
            sample = evidence.shown(workload, setting, f"{limits.PREFIX}{NAMES[heading]}_fraction")
            yield f"{name_of(setting)}, {heading}", text, says_mean(sample, 100.0, text, EXACT)
            if moments := moments_of(sample, 1.0):
                means[heading.removesuffix(" (%)")] = moments[1]
        yield f"{name_of(setting)}, limited by", row["limited by"], row["limited by"] == largest(means)


def largest(means: Mapping[str, float]) -> str:
    """The cause that took most, where that is a quarter of the time and no less than what is not known."""
    unknown = "not known"
    causes = sorted((share, name) for name, share in means.items() if name != unknown)
    enough = causes and causes[-1][0] >= max(0.25, means.get(unknown, 0.0))
    return causes[-1][1] if enough else unknown
