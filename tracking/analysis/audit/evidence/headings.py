"""The headings of a report's figures, from the catalogue: the metric and unit of each; and the axes of software."""

from __future__ import annotations

from collections.abc import Mapping

from tracking.base import quantities, sensor_headings, time_parts
from tracking.base.quantities import CATALOGUE

# The metric under each heading of the table of settings, and the factor to the heading's unit.
QUANTITIES = {CATALOGUE[key].heading: (key, CATALOGUE[key].scale) for key in quantities.OF_A_SETTING}
BESIDE_PUBLISHED = (
    quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE, quantities.THROUGHPUT_TOKENS_PER_SEC,
    quantities.THROUGHPUT_TOKENS_PER_SEC_PER_DEVICE, quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC,
)  # fmt: skip
# Further metrics, for rows beside published figures.
BESIDE = {
    **QUANTITIES,
    "time to accuracy (min)": (quantities.TIME_TO_ACCURACY_SEC, 1 / 60),
    **{CATALOGUE[key].heading: (key, CATALOGUE[key].scale) for key in BESIDE_PUBLISHED},
}
# The metric under each heading of a ratio, and whether the ratio is divided by the growth of the devices.
RATIOS = {
    heading: (key, of_growth)
    for key, headings in quantities.RATIOS.items()
    for heading, of_growth in zip(headings, (False, True), strict=False)
}
OVER_FP32 = {headings[2]: key for key, headings in quantities.RATIOS.items()}
# The param under each heading of a fact: in the table of settings, and in rows beside published ones.
FACTS = {"global batch": "global_batch_size", "precision": "precision"}
OWN_FACTS = {"GPUs": "gpus", "batch": "global_batch_size", "precision": "precision"}
# The cause under each heading of what limited the runs.
CAUSES = {words: cause for cause, words in time_parts.CAUSES.items()}
LIMITS = {CATALOGUE[key].heading: key for key in map(quantities.bottleneck, time_parts.CAUSES)}
LEAST_SHARE = 0.005  # causes below it have no column
# The metric under each heading of utilisation.
BUSY = {CATALOGUE[key].heading: key for key in quantities.OF_HARDWARE}
# The system metrics of each panel of utilisation over time.
PANELS = {words: quantities.SYSTEM + pattern for words, pattern in sensor_headings.HEADINGS.items()}
SPEEDS = tuple(
    CATALOGUE[key].heading for key in (quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.TIME_TO_ACCURACY_SEC)
)
# Axes by their short names, and the axes of the software stack.
SHORT = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
SOFTWARE = {
    "stack", "stack.name", "env.stack_id", "env.image", "env.driver", "env.cuda", "env.cudnn", "env.nccl", "env.torch",
    "env.framework", "env.python",
}  # fmt: skip


def is_stack(axis: str) -> bool:
    return SHORT.get(axis, axis) in SOFTWARE


def largest(means: Mapping[str, float]) -> str:
    """The cause with the largest share, the catalogue's first if equal; "not known" if all are below 5 %."""
    shares = {name: round(means[name], 6) for name in CAUSES if name != "not known" and name in means}
    most = max(shares.values(), default=0.0)
    return next(name for name, share in shares.items() if share == most) if most >= 0.05 else "not known"
