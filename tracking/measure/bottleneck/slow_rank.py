"""The rank that the others wait for, and the cause, from each rank's own times and its GPU's sensors.

In the exchange of gradients, every rank waits for the last one. So the rank that waits least holds up all others. Some
rank always waits least, so one is named only if equal ranks would not differ as much (rank_noise.py). Pure arithmetic
on the windows' events, the sensors' means and the places of the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.measure.bottleneck import rank_noise
from tracking.measure.bottleneck.rank_noise import EXCHANGE, Lead

Windows = Sequence[Mapping[str, Any]]
MIN_WAIT_SHARE = 0.05  # a rank is named if the others wait for it for this share of the time
MIN_CAUSE_SHARE = 0.25  # a cause is named if it explains this share of that wait
MIN_BLOCKED_SHARE = 0.5  # the same for `blocked`, a remainder: the core time is not known for computing alone
HOST_PARTS = ("gc", "queued", "quota")
SLOWER_CLOCK = 5.0  # percentage points below the other GPUs
AGAINST_SLOW_RANK = {  # by the cause
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


@dataclass(frozen=True)
class Rank:
    """Seconds of one rank's steps by cause; `late` is the number of steps whose batch was late."""

    rank: int
    total: float
    data: float
    exchange: float
    gc: float
    queued: float
    quota: float
    core: float
    late: float
    samples: float
    num_steps: int
    lead: Lead

    @property
    def computing(self) -> float:
        return max(0.0, self.total - self.data - self.exchange - self.gc)

    @property
    def off_core(self) -> float:
        return max(0.0, self.computing + self.gc - self.core)

    def plain(self) -> dict[str, Any]:
        """The shares of the rank's time, as in result.json."""
        host = min(self.gc + self.queued + self.quota, max(0.0, self.total - self.data - self.exchange))
        shares = {"data": self.data, "exchange": self.exchange, "host": host}
        shares = {name: round(sec / self.total, 4) for name, sec in shares.items()}
        computing = round(max(0.0, 1.0 - sum(shares.values())), 4)
        return {"rank": self.rank, **shares, "computing": computing, "gc": round(self.gc / self.total, 4)}


def ranks(windows: Windows) -> list[Rank]:
    """All ranks, from the windows that have the ranks' time by part; [] for one process, and for older versions."""
    windows_by_part = [values for values in windows if len(values.get(EXCHANGE) or ()) > 1]
    steps = sum(len(values.get("step_ms") or ()) for values in windows_by_part)
    size = len(windows_by_part[0][EXCHANGE]) if windows_by_part else 0

    def total(key: str, rank: int) -> float:
        return float(sum(values[key][rank] for values in windows_by_part if len(values.get(key) or ()) == size))

    parts = ("rank_ms", "rank_wait_ms", EXCHANGE, *(f"rank_{name}_ms" for name in (*HOST_PARTS, "core")))
    rows = []
    for rank, lead in enumerate(rank_noise.leads(windows_by_part)):
        whole, data, exchange, gc, queued, quota, core = (total(key, rank) / 1e3 for key in parts)
        quota = min(quota, whole)  # a control group counts a halt once for each CPU
        late, samples = total("rank_late", rank), sum(_samples(values, rank, size) for values in windows_by_part)
        rows.append(Rank(rank, whole, data, exchange, gc, queued, quota, core, late, samples, steps, lead))
    return rows


def _samples(values: Mapping[str, Any], rank: int, size: int) -> float:
    """A rank's samples in a window. Without `rank_samples`, all ranks had the same number."""
    by_rank = values.get("rank_samples") or ()
    return float(by_rank[rank] if len(by_rank) == size else values.get("samples", 0) / size)


def waited_for(all_ranks: Sequence[Rank]) -> tuple[Rank, float] | None:
    """The rank that holds up the others, and their seconds of waiting for it; None if all are alike."""
    if len(all_ranks) < 2:
        return None
    least, waited = longest_wait(all_ranks)
    is_long = least.total > 0 and waited >= MIN_WAIT_SHARE * least.total
    return (least, waited) if is_long and least.lead.is_beyond_noise else None


def longest_wait(all_ranks: Sequence[Rank]) -> tuple[Rank, float]:
    """The rank that waits least, and by how many seconds less than the others; equal ranks have one, too."""
    least = min(all_ranks, key=lambda rank: rank.exchange)
    return least, _others(all_ranks, least, "exchange") - least.exchange


def imbalance(all_ranks: Sequence[Rank]) -> float | None:
    """Seconds that the others wait for a rank, without the extra time of its data and garbage collections."""
    if len(all_ranks) < 2:
        return None
    held_up = waited_for(all_ranks)
    if held_up is None:
        return 0.0
    slow, waited = held_up
    explained: float = sum(max(0.0, getattr(slow, part) - _others(all_ranks, slow, part)) for part in ("data", "gc"))
    return max(0.0, waited - explained)


def _others(all_ranks: Sequence[Rank], rank: Rank, part: str) -> float:
    """The mean of a field over the other ranks."""
    values = [float(getattr(other, part)) for other in all_ranks if other is not rank]
    return sum(values) / len(values)


def verdict(
    all_ranks: Sequence[Rank], places: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, float]],
    co_tenants: str = "",
) -> dict[str, Any]:  # fmt: skip
    """`rank`, `node`, `waited` (a share of its time), `cause` and `words`; {} if no rank holds up the others.

    `gpus` are the means of the GPU sensors by rank. `co_tenants` names who else computes on the slow rank's GPU.
    """
    held_up = waited_for(all_ranks)
    if held_up is None:
        return {}
    slow, waited = held_up
    place = places[slow.rank] if slow.rank < len(places) else {}
    cause, words = _cause(slow, all_ranks, waited, gpus, co_tenants)
    has_several_nodes = len({str(other.get("node", "")) for other in places}) > 1
    name = f"rank {slow.rank}" + (f" on node {place['node']}" if has_several_nodes else "")
    share = waited / slow.total
    text = f"{name} waits least in the exchange, and the others wait {share:.0%} of the time for it: {words}"
    return {"rank": slow.rank, "node": place.get("node", ""), "waited": round(share, 4), "cause": cause,
            "words": text.replace("%", " %")}  # fmt: skip


def _cause(
    slow: Rank, all_ranks: Sequence[Rank], waited: float, gpus: Mapping[int, Mapping[str, float]], co_tenants: str
) -> tuple[str, str]:
    """The cause that explains most of the wait, with words that state a share of the slow rank's time."""
    longer = {part: getattr(slow, part) - _others(all_ranks, slow, part) for part in ("data", *HOST_PARTS, "computing")}
    longer |= _off_core(slow, all_ranks, bool(gpus))
    words = {
        "data": f"its loader is late in {slow.late / max(1, slow.num_steps):.0%} of steps",
        "gc": f"Python's garbage collection takes {slow.gc / slow.total:.0%} of its time",
        "queued": f"other processes have its core for {longer['queued'] / slow.total:.0%} of its time",
        "quota": f"its container's quota halts it for {slow.quota / slow.total:.0%} of its time",
        "blocked": f"it sleeps, or waits for a file, a lock or the network, for {longer['blocked'] / slow.total:.0%} of"
        " its time",
    }
    least = dict.fromkeys(words, MIN_CAUSE_SHARE) | {"blocked": MIN_BLOCKED_SHARE}
    named = [part for part in words if longer[part] > 0 and longer[part] >= least[part] * waited]
    if named:
        likeliest = max(named, key=lambda part: longer[part])
        return likeliest, words[likeliest]
    if cause := _gpu_cause(slow, gpus, co_tenants):
        return cause
    others = _others(all_ranks, slow, "samples")
    if others and slow.samples > 1.05 * others:
        return "samples", f"its batches have {slow.samples / others:.2g} times the samples of the others"
    ratio = slow.computing / max(1e-9, _others(all_ranks, slow, "computing"))
    return (
        "computing",
        f"it computes {ratio:.2g} times as long as the others, so it has more work, or is slower in a way that no"
        " sensor shows",
    )


def _off_core(slow: Rank, all_ranks: Sequence[Rank], on_gpus: bool) -> dict[str, float]:
    """Seconds that the slow rank was off its core longer than the others: `queued` for a core, or `blocked`.

    A rank with more work also queues longer, so the others' queueing is scaled to its core time. Without the kernel's
    count of the queue, all time off the core counts as queued. On a GPU, the host is off its core while it waits for
    the GPU.
    """
    known = all(rank.core for rank in all_ranks)
    counted = any(rank.queued for rank in all_ranks)
    if not known or (on_gpus and not counted):
        return {"queued": slow.queued - _others(all_ranks, slow, "queued"), "blocked": 0.0}
    queued = {rank.rank: rank.queued if counted else rank.off_core for rank in all_ranks}
    queues = [queued[rank.rank] / rank.core for rank in all_ranks if rank is not slow]
    longer = {
        part: getattr(slow, part) - _others(all_ranks, slow, part) for part in ("computing", "gc", "core", "queued")
    }
    blocked = longer["computing"] + longer["gc"] - max(0.0, longer["core"]) - max(0.0, longer["queued"])
    return {
        "queued": queued[slow.rank] - slow.core * sum(queues) / len(queues),
        "blocked": blocked if counted and not on_gpus else 0.0,
    }


def _gpu_cause(slow: Rank, gpus: Mapping[int, Mapping[str, float]], co_tenants: str) -> tuple[str, str] | None:
    """The cause that co-tenants or the sensors of the slow rank's GPU show, or None."""
    if co_tenants:
        return "co-tenant", f"others compute on its GPU ({co_tenants})"
    sensors = gpus.get(slow.rank, {})
    others = [values for rank, values in gpus.items() if rank != slow.rank]

    def lower(key: str) -> float:
        other_values = [values[key] for values in others if key in values]
        return sum(other_values) / len(other_values) - sensors[key] if other_values and key in sensors else 0.0

    for kind in ("power", "thermal"):
        lost_percent = -lower(f"{kind}_throttled_percentage")
        if lost_percent > SLOWER_CLOCK:
            why = "power" if kind == "power" else "heat"
            return (
                kind,
                f"{why} keeps its GPU's clock down in {sensors[f'{kind}_throttled_percentage']:.0f}% of the samples",
            )
    if lower("sm_clock_percentage") > SLOWER_CLOCK:
        return (
            "clock",
            f"its GPU's clock is at {sensors['sm_clock_percentage']:.0f}% of its highest, lower than the others'",
        )
    if -lower("ecc_errors") > 0:
        return "ecc", f"its GPU's memory has {sensors['ecc_errors']:.0f} errors"
    if lower("pcie_link_percentage") > SLOWER_CLOCK:
        return "links", f"its GPU's PCIe link has {sensors['pcie_link_percentage']:.0f}% of its width and generation"
    if lower("engine_activity_percentage") > SLOWER_CLOCK:
        return (
            "host",
            f"its GPU has work in {sensors['engine_activity_percentage']:.0f}% of the time: its host is slower",
        )
    return None
