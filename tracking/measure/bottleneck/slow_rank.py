"""The rank that the others wait for, and why, by what each rank measured of itself and what sensors say of its GPU.

In the exchange of gradients every rank waits for the last one to come. The rank that waits least there is therefore the
one that holds up all. Pure: from the windows' events, the sensors' means and the places of the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Windows = Sequence[Mapping[str, Any]]
LEAST_WAIT = 0.05  # share of the time that the others wait for a rank which is named
LEAST_PART = 0.25  # share of that wait which a cause explains, if it is named
HELD = ("gc", "queued", "quota")
EXCHANGE = "rank_exchange_ms"
SLOWER_CLOCK = 5.0  # percentage points below the other GPUs


@dataclass(frozen=True)
class Rank:
    """Seconds of one rank's steps, by what they went to; `late` is the number of steps whose batch was late."""

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

    @property
    def computing(self) -> float:
        return max(0.0, self.total - self.data - self.exchange - self.gc)

    def plain(self) -> dict[str, Any]:
        """As result.json has it: shares of the rank's time."""
        host = min(self.gc + self.queued + self.quota, max(0.0, self.total - self.data - self.exchange))
        shares = {"data": self.data, "exchange": self.exchange, "host": host}
        shares = {name: round(sec / self.total, 4) for name, sec in shares.items()}
        computing = round(max(0.0, 1.0 - sum(shares.values())), 4)
        return {"rank": self.rank, **shares, "computing": computing, "gc": round(self.gc / self.total, 4)}


def ranks(windows: Windows) -> list[Rank]:
    """All ranks of the windows that say what the ranks' time went to; empty of one process, and of older versions."""
    said = [values for values in windows if len(values.get(EXCHANGE) or ()) > 1]
    steps = sum(len(values.get("step_ms") or ()) for values in said)
    size = len(said[0][EXCHANGE]) if said else 0

    def total(key: str, rank: int) -> float:
        return float(sum(values[key][rank] for values in said if len(values.get(key) or ()) == size))

    parts = ("rank_ms", "rank_wait_ms", EXCHANGE, *(f"rank_{name}_ms" for name in (*HELD, "core")))
    rows = []
    for rank in range(size):
        own, data, exchange, gc, queued, quota, core = (total(key, rank) / 1e3 for key in parts)
        quota = min(quota, own)  # A control group counts a halt once for each CPU.
        late, samples = total("rank_late", rank), sum(_samples(values, rank, size) for values in said)
        rows.append(Rank(rank, own, data, exchange, gc, queued, quota, core, late, samples, steps))
    return rows


def _samples(values: Mapping[str, Any], rank: int, size: int) -> float:
    """A window has `rank_samples` only where ranks differ; elsewhere each rank has an equal part."""
    of_ranks = values.get("rank_samples") or ()
    return float(of_ranks[rank] if len(of_ranks) == size else values.get("samples", 0) / size)


def waited_for(all_ranks: Sequence[Rank]) -> tuple[Rank, float] | None:
    """The rank that waits least in the exchange, and how long the others wait for it; None where none stands out."""
    if len(all_ranks) < 2:
        return None
    least = min(all_ranks, key=lambda rank: rank.exchange)
    waited = _others(all_ranks, least, "exchange") - least.exchange
    return (least, waited) if least.total and waited >= LEAST_WAIT * least.total else None


def imbalance(all_ranks: Sequence[Rank]) -> float | None:
    """Seconds that the others wait for a rank, but for those that its data and its collections take longer."""
    if len(all_ranks) < 2:
        return None
    held_up = waited_for(all_ranks)
    if held_up is None:
        return 0.0
    slow, waited = held_up
    named: float = sum(max(0.0, getattr(slow, part) - _others(all_ranks, slow, part)) for part in ("data", "gc"))
    return max(0.0, waited - named)


def _others(all_ranks: Sequence[Rank], rank: Rank, part: str) -> float:
    """The mean over the other ranks."""
    values = [float(getattr(other, part)) for other in all_ranks if other is not rank]
    return sum(values) / len(values)


def verdict(
    all_ranks: Sequence[Rank], places: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, float]],
    co_tenants: str = "",
) -> dict[str, Any]:  # fmt: skip
    """`rank`, `node`, `waited` (share of its time), `cause` and `words`; empty where no rank holds up the others.

    `gpus` are the means of the sensors of a rank's GPU, and `co_tenants` who else computes on it, in words.
    """
    held_up = waited_for(all_ranks)
    if held_up is None:
        return {}
    slow, waited = held_up
    place = places[slow.rank] if slow.rank < len(places) else {}
    cause, words = _cause(slow, all_ranks, waited, gpus, co_tenants)
    several = len({str(other.get("node", "")) for other in places}) > 1
    name = f"rank {slow.rank}" + (f" on node {place['node']}" if several else "")
    share = waited / slow.total
    text = f"{name} waits least in the exchange, and the others wait {share:.0%} of the time for it: {words}"
    return {"rank": slow.rank, "node": place.get("node", ""), "waited": round(share, 4), "cause": cause,
            "words": text.replace("%", " %")}  # fmt: skip


def _cause(
    slow: Rank, all_ranks: Sequence[Rank], waited: float, gpus: Mapping[int, Mapping[str, float]], co_tenants: str
) -> tuple[str, str]:
    """What explains most of the wait. A share of the slow rank's own time is said."""
    longer = {part: getattr(slow, part) - _others(all_ranks, slow, part) for part in ("data", *HELD, "computing")}
    longer["queued"] = max(longer["queued"], _off_core(slow, all_ranks) if not gpus else 0.0)
    words = {
        "data": f"its loader is late in {slow.late / max(1, slow.num_steps):.0%} of steps",
        "gc": f"Python's garbage collection takes {slow.gc / slow.total:.0%} of its time",
        "queued": f"other processes have its core for {longer['queued'] / slow.total:.0%} of its time",
        "quota": f"its container's quota halts it for {slow.quota / slow.total:.0%} of its time",
    }
    named = max(words, key=lambda part: longer[part])
    if longer[named] >= LEAST_PART * waited and longer[named] > 0:
        return named, words[named]
    if told := _of_gpu(slow, gpus, co_tenants):
        return told
    others = _others(all_ranks, slow, "samples")
    if others and slow.samples > 1.05 * others:
        return "samples", f"its batches have {slow.samples / others:.2g} times the samples of the others"
    more = slow.computing / max(1e-9, _others(all_ranks, slow, "computing"))
    return (
        "computing",
        f"it computes {more:.2g} times as long as the others, and nothing was seen that slows it: more work",
    )


def _off_core(slow: Rank, all_ranks: Sequence[Rank]) -> float:
    """Seconds in which it should have computed on a CPU and did not, beyond the others' share; 0 where not known.

    A rank with more work loses more to other processes, too: that alone is none of their doing.
    """
    off = {
        rank.rank: max(0.0, 1.0 - rank.core / max(1e-9, rank.computing + rank.gc)) for rank in all_ranks if rank.core
    }
    if len(off) < len(all_ranks):
        return 0.0
    others = [share for number, share in off.items() if number != slow.rank]
    return (off[slow.rank] - sum(others) / len(others)) * (slow.computing + slow.gc)


def _of_gpu(slow: Rank, gpus: Mapping[int, Mapping[str, float]], co_tenants: str) -> tuple[str, str] | None:
    """What the sensors say of its GPU alone."""
    if co_tenants:
        return "co-tenant", f"others compute on its GPU ({co_tenants})"
    own = gpus.get(slow.rank, {})
    others = [values for rank, values in gpus.items() if rank != slow.rank]

    def lower(key: str) -> float:
        known = [values[key] for values in others if key in values]
        return sum(known) / len(known) - own[key] if known and key in own else 0.0

    for kind in ("power", "thermal"):
        held = -lower(f"{kind}_throttled_percentage")
        if held > SLOWER_CLOCK:
            why = "power" if kind == "power" else "heat"
            return (
                kind,
                f"{why} keeps its GPU's clock down in {own[f'{kind}_throttled_percentage']:.0f}% of the samples",
            )
    if lower("sm_clock_percentage") > SLOWER_CLOCK:
        return (
            "clock",
            f"its GPU's clock is at {own['sm_clock_percentage']:.0f}% of its highest, lower than the others'",
        )
    if -lower("ecc_errors") > 0:
        return "ecc", f"its GPU's memory has {own['ecc_errors']:.0f} errors"
    if lower("pcie_link_percentage") > SLOWER_CLOCK:
        return "links", f"its GPU's PCIe link has {own['pcie_link_percentage']:.0f}% of its width and generation"
    if lower("engine_activity_percentage") > SLOWER_CLOCK:
        return "host", f"its GPU has work in {own['engine_activity_percentage']:.0f}% of the time: its host is slower"
    return None
