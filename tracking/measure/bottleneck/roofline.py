"""A run's place under the roofline: its FLOP/s against its FLOPs per byte of GPU memory traffic.

Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009. FLOPs are the model's, as its mathematics needs them.
Bytes are the GPU's memory traffic by its counter, calibrated by a copy of known size on the same hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracking.base import quantities
from tracking.measure.bottleneck.activity import PREFIX
from tracking.measure.bottleneck.ceilings import DRAM, Ceilings
from tracking.measure.training import throughput
from tracking.record import Record

FLOPS = "model_flops"  # the event with the FLOPs of a sample
RATE = quantities.ROOFLINE_FLOPS_PER_SEC_PER_DEVICE
BYTES = quantities.ROOFLINE_DRAM_BYTES_PER_SEC_PER_DEVICE
INTENSITY = quantities.ROOFLINE_FLOPS_PER_BYTE
# Reasons why a run on GPUs has no place under the roofline.
NO_FLOPS = "its FLOP/s are not known: the model states no FLOPs, or no step was timed"
NO_TRAFFIC = "the GPU does not report its memory traffic (NVML's GPM), or no sample lies within the training"
NO_CEILINGS = "no ceilings were measured on this hardware: python -m tracking ceilings"


@dataclass(frozen=True)
class RooflinePoint:
    """The rates of one device; None if not measured."""

    flops_per_sec: float | None
    bytes_per_sec: float | None

    @property
    def intensity(self) -> float | None:
        if self.flops_per_sec is None or not self.bytes_per_sec:
            return None
        return self.flops_per_sec / self.bytes_per_sec


def run_point(events: Sequence[Record], means: Mapping[str, float], measured: Ceilings | None) -> RooflinePoint:
    """A run's point, from its events, its sensors' means within the training, and its hardware's ceilings."""
    flops = next((event for event in events if event.key == FLOPS), None)
    rate = None
    if flops is not None:
        rate = _samples_per_sec(events) * float(flops.values["per_sample"]) / int(flops.values["num_devices"])
    per_percent = measured.dram_bytes_per_percent() if measured else None
    dram_percent = means.get(f"gpu_{DRAM}")
    bytes_per_sec = dram_percent * per_percent if dram_percent is not None and per_percent is not None else None
    return RooflinePoint(rate or None, bytes_per_sec)


def ceiling_share(point: RooflinePoint, measured: Ceilings | None, gpu: str, precision: str) -> dict[str, float]:
    """The share of the measured matrix-product rate that was reached; {} if the GPU's data-sheet peak is known."""
    ceiling = measured.rate(f"matmul/{precision}") if measured else None
    if throughput.peak_flops().get(gpu, {}).get(precision) is not None or point.flops_per_sec is None or not ceiling:
        return {}
    return {quantities.CEILINGS_FLOPS_UTILIZATION: point.flops_per_sec / ceiling}


def metrics(point: RooflinePoint) -> dict[str, float]:
    values = {RATE: point.flops_per_sec, BYTES: point.bytes_per_sec, INTENSITY: point.intensity}
    return {key: value for key, value in values.items() if value is not None}


def reason_absent(figures: Mapping[str, float]) -> str:
    """Why a run on GPUs with these metrics has no place under the roofline; "" if it has one."""
    if INTENSITY in figures:
        return ""
    reasons = [] if RATE in figures else [NO_FLOPS]
    if BYTES not in figures:
        reasons.append(NO_CEILINGS if f"{PREFIX}gpu_{DRAM}" in figures else NO_TRAFFIC)
    return ", and ".join(reasons)


def _samples_per_sec(events: Sequence[Record]) -> float:
    """The rate over all training steps and ranks, steady or not, since the sensors cover all of them."""
    windows = [event.values for event in events if event.key == "throughput_window" and event.values.get("rank_ms")]
    seconds = sum(max(values["rank_ms"]) for values in windows) / 1e3
    return sum(values["samples"] for values in windows) / seconds if seconds else 0.0
