"""python -m tests.chaos MINUTES [--seed SEED] [--case KIND/VARIANT]: cases of every kind in turn, until the time is up.

Prints each case, and at the end how many of each kind were tried and were exact. Exit code 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import (
    followers,
    foreign_folders,
    kills,
    machine,
    many,
    new_databases,
    others_code,
    passwords,
    servers,
    side_by_side,
)
from tests.chaos.case import Case, Finding, Kind, Skipped
from tests.support.commands import ROOT
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer
from tracking.store.server import ENVIRONMENT

KINDS = (
    kills.LAUNCHER_KILLS, kills.ALL_KILLS, kills.WORKER_KILLS, kills.SYNC_KILLS, new_databases.FIRST_SECONDS,
    new_databases.AT_ONCE, servers.SERVER, servers.RESTART, foreign_folders.FOREIGN, machine.DISK_FULL, machine.CLOCK,
    many.SWEEP, many.WRITERS, passwords.PASSWORD, side_by_side.STARTS, side_by_side.KILLS, others_code.PROGRAM_KILLS,
    others_code.SCRIPT_KILLS, followers.FOLLOWER,
)  # fmt: skip
LONG_MINUTES = 30.0
MANY_VARIANTS = 20


@dataclass
class Tally:
    """What came of the cases, by kind."""

    tried: Counter[str] = field(default_factory=Counter)
    exact: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = ["| kind | tried | exact | rows compared |", "|---|---|---|---|"]
        lines += [f"| {kind} | {self.tried[kind]} | {self.exact[kind]} | {self.rows[kind]:,} |" for kind in self.tried]
        total = (self.tried.total(), self.exact.total(), self.rows.total())
        lines.append("| all | {} | {} | {:,} |".format(*total))
        lines += [f"skipped: {kind}: {reason}" for kind, reason in self.skipped.items()]
        return "\n".join([*lines, *self.findings])


def cases(kinds: list[Kind], seed: int, minutes: float) -> Iterator[tuple[Kind, str, int]]:
    """All kinds in turn, in an order of chance, each with its next variant; without end.

    After the first turn, kinds of many variants come several times in each.
    """
    rng = random.Random(seed)
    left: dict[str, list[str]] = defaultdict(list)
    if minutes >= LONG_MINUTES:
        left |= {kind.name: [kind.once] for kind in kinds if kind.once}
    turn = kinds
    while True:
        for kind in rng.sample(turn, len(turn)):
            left[kind.name] = left[kind.name] or rng.sample(kind.variants, len(kind.variants))
            yield kind, left[kind.name].pop(), rng.randrange(10**6)
        turn = [kind for kind in kinds for _ in range(1 + len(kind.variants) // MANY_VARIANTS)]


def play(kind: Kind, case: Case, tally: Tally) -> None:
    """Play a case, tell what came of it, and remove its folder where it was exact."""
    started, wrong = time.monotonic(), ""
    try:
        kind.play(case)
    except Skipped as reason:
        tally.skipped[kind.name] = str(reason)
        shutil.rmtree(case.cwd, ignore_errors=True)
        return
    except Finding as finding:
        wrong = str(finding)
    except Exception:  # a fault of this program, not of the product: reported all the same
        wrong = traceback.format_exc()
    finally:
        case.close()
    tally.tried[kind.name] += 1
    tally.rows[kind.name] += case.rows
    words = f"{kind.name}/{case.variant} --seed {case.seed}: {'WRONG' if wrong else 'exact'}"
    print(f"{words}, {case.rows:,} rows, {time.monotonic() - started:.0f} s; {'; '.join(case.told)}", flush=True)
    if not wrong:
        tally.exact[kind.name] += 1
        shutil.rmtree(case.cwd, ignore_errors=True)
        return
    print(f"{wrong}\nkept: {case.cwd}", flush=True)
    command = f"python -m tests.chaos --case '{kind.name}/{case.variant}' --seed {case.seed}"
    tally.findings.append(f"WRONG: {wrong.splitlines()[0][:300]}\n  kept: {case.cwd}\n  again: {command}")


def run(chosen: Iterator[tuple[Kind, str, int]], root: Path, until: float) -> Tally:
    """Cases one after the other, as long as one can begin before that time of the monotonic clock."""
    tally = Tally()
    with ExitStack() as stack:
        (root / "server").mkdir()
        server = stack.enter_context(MlflowServer(root / "server"))
        for number, (kind, variant, seed) in enumerate(chosen, 1):
            if time.monotonic() > until:
                break
            cwd = root / f"case{number}"
            cwd.mkdir()
            try:
                with FaultyProxy(server.port) as proxy:
                    play(kind, Case(kind.name, variant, seed, cwd, server, proxy), tally)
            except KeyboardInterrupt:
                break
    return tally


def one_case(words: str, seed: int) -> Iterator[tuple[Kind, str, int]]:
    name, _, variant = words.partition("/")
    for kind in KINDS:
        if kind.name == name and variant in [*kind.variants, kind.once]:
            return iter([(kind, variant, seed)])
    allowed = "\n  ".join(f"{kind.name}/{variant}" for kind in KINDS for variant in kind.variants)
    raise SystemExit(f"--case: {words!r} is no case; allowed:\n  {allowed}")


def settle() -> None:
    """As tests/conftest.py has it: compiled modules are kept, and what is started in the background can be stopped."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".bytecode_cache")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.update(ENVIRONMENT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=30.0, help="no case begins later")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--kind", action="append", help="only this kind of case; may be given again")
    parser.add_argument("--case", help="KIND/VARIANT: only this one, with its own seed")
    words = parser.parse_args()
    settle()
    kinds = [kind for kind in KINDS if not words.kind or kind.name in words.kind]
    if not kinds:
        parser.error(f"--kind {words.kind}; allowed: {', '.join(kind.name for kind in KINDS)}")
    chosen = one_case(words.case, words.seed) if words.case else cases(kinds, words.seed, words.minutes)
    root = Path(tempfile.mkdtemp(prefix="timetrial-chaos-"))
    print(f"seed {words.seed}, in {root}", flush=True)
    tally = run(chosen, root, time.monotonic() + 60 * words.minutes)
    print(f"\n{tally}\nseed {words.seed}")
    if not tally.findings:
        shutil.rmtree(root, ignore_errors=True)
    return int(bool(tally.findings))


if __name__ == "__main__":
    sys.exit(main())
