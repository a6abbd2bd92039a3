"""Co-tenants of a run: on a made-up /proc, and beside a real busy process."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.folders import wait_for
from tracking.machine.environment import processes
from tracking.machine.environment.processes import TICKS_PER_SEC, parse_cpu_sec, parse_quota, parse_stat
from tracking.machine.usage import CoTenants
from tracking.machine.usage import co_tenants as module

STAT = (
    "4242 (tmux: (srv) x) S 1 4200 4200 0 -1 4194560 397 0 0 0 250 50 700 100 20 0 1 0 1768624 3133440 397 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0"
)
CPU = (
    "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 20 30 1000 7 5 6 40 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\ncpu11 500 0 0 0\nintr 1 2\n"
)
LAUNCHER, WORKER, RANK, OTHER = 100, 200, 300, 400


def test_a_process_is_read_whatever_its_name() -> None:
    process = parse_stat(STAT)
    assert (process.pid, process.name, process.parent, process.session, process.started) == (
        4242, "tmux: (srv) x", 1, 4200, 1768624,
    )  # fmt: skip
    assert (process.cpu_sec, process.total_sec) == (300 / TICKS_PER_SEC, 1100 / TICKS_PER_SEC)
    with pytest.raises((ValueError, IndexError)):
        parse_stat("")


def test_the_cpus_in_use_are_read_without_interrupts() -> None:
    assert parse_cpu_sec(CPU, {0}) == (150 / TICKS_PER_SEC, 40 / TICKS_PER_SEC)
    assert parse_cpu_sec(CPU, {0, 1}) == (153 / TICKS_PER_SEC, 41 / TICKS_PER_SEC)
    assert parse_cpu_sec(CPU, {11}) == (500 / TICKS_PER_SEC, 0.0)


def test_the_quota_is_the_tightest_around(tmp_path: Path) -> None:
    assert parse_quota("max 100000\n") == math.inf
    assert parse_quota("150000 100000\n") == 1.5
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/cpu.max").write_text("150000 100000\n")
    (tmp_path / "a/b/cpu.max").write_text("max 100000\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    assert processes.quota(tmp_path, own) == 1.5
    own.write_text("1:cpu:/a\n")
    assert processes.quota(tmp_path, own) == math.inf


class Machine:
    """A /proc of a machine with the CPUs of this one, on which seconds pass by `run`."""

    def __init__(self, root: Path, namespace: str = processes.INITIAL_NAMESPACE) -> None:
        self.proc, self.now = root, 0.0
        self.stolen = 0.0
        self.sec: dict[int, float] = {}  # seconds of CPU, by process
        self.gpu: dict[int, list[int]] = {}
        (root / "self/ns").mkdir(parents=True)
        (root / "self/ns/pid").symlink_to(namespace)
        for pid, name, parent, session in (
            (1, "init", 0, 1), (2, "kthreadd", 0, 0), (50, "kswapd0", 2, 0), (90, "bash", 1, 90),
            (LAUNCHER, "python", 90, 90), (WORKER, "python", LAUNCHER, WORKER), (RANK, "python", WORKER, WORKER),
            (OTHER, "stress", 90, 90),
        ):  # fmt: skip
            self.add(pid, name, parent, session)

    def add(self, pid: int, name: str, parent: int, session: int) -> None:
        (self.proc / str(pid)).mkdir()
        self.about = {**getattr(self, "about", {}), pid: (name, parent, session)}
        self.sec[pid] = 0.0
        self.write()

    def run(self, sec: float, **used: float) -> None:
        """Let time pass in which processes, p400 say, use so many cores, and a hypervisor takes `steal`."""
        self.now += sec
        self.stolen += used.pop("steal", 0.0) * sec
        hidden = used.pop("hidden", 0.0) * sec
        self.sec[0] = self.sec.get(0, 0.0) + hidden
        for name, cores in used.items():
            self.sec[int(name[1:])] += cores * sec
        self.write()

    def write(self) -> None:
        for pid, (name, parent, session) in self.about.items():
            ticks = round(self.sec[pid] * TICKS_PER_SEC)
            fields = f"S {parent} 0 {session} 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 7 0"
            (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) {fields}")
        busy, stolen = (round(sec * TICKS_PER_SEC) for sec in (sum(self.sec.values()), self.stolen))
        first = min(os.sched_getaffinity(0))
        (self.proc / "stat").write_text(f"cpu{first} {busy} 0 0 0 0 0 0 {stolen} 0 0\n")

    def watched(self, *gpus: str) -> CoTenants:
        return CoTenants(gpus, self.proc, LAUNCHER, lambda: self.now, lambda _: self.gpu)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return Machine(tmp_path)


def test_the_busiest_process_is_one_of_the_runs_and_counts_since_the_sample_before(machine: Machine) -> None:
    machine.run(10, p300=1.9)
    watched = machine.watched()
    machine.add(600, "loader", RANK, WORKER)
    machine.run(10, p300=0.3, p50=0.6, p400=0.9, p600=0.4)  # the kernel's, and another's
    assert watched.sample()["run_busiest_process_cores"] == pytest.approx(0.4)


def test_a_run_alone_has_no_neighbours(machine: Machine) -> None:
    watched = machine.watched()
    machine.run(10, p100=0.1, p200=0.4, p300=1.4, p50=0.1)  # its own, and the kernel's
    assert watched.sample() == pytest.approx(
        {"run_cpu_percentage": 100.0, "neighbours_cpu_percentage": 0.0, "run_busiest_process_cores": 1.4}, abs=1e-9
    )
    machine.run(10, p300=1.8, p400=0.1)
    assert list(watched.sample().values()) == pytest.approx([90.0, 5.0, 1.8])
    assert watched.tag() == ""


def test_who_takes_more_than_a_tenth_is_named_with_the_share(machine: Machine) -> None:
    watched = machine.watched()
    machine.run(10, p300=0.2, p400=1.8)
    assert list(watched.sample().values()) == pytest.approx([10.0, 90.0, 0.2])
    machine.run(10, p300=1.0, p400=1.0)
    watched.sample()
    assert watched.tag() == "cpu: 70 % of 2 cores (stress)"


def test_processes_that_cannot_be_seen_are_counted_too(machine: Machine) -> None:
    watched = machine.watched()
    machine.run(10, p300=1.0, hidden=0.5)
    assert watched.sample()
    assert watched.tag() == "cpu: 25 % of 2 cores"


def test_what_a_hypervisor_takes_is_told(machine: Machine) -> None:
    watched = machine.watched()
    machine.run(10, p300=1.4, steal=0.6)
    watched.sample()
    assert watched.tag() == "cpu: 30 % of 2 cores (stolen by the host)"


def test_a_run_keeps_processes_whose_parents_have_ended(machine: Machine) -> None:
    watched = machine.watched()
    machine.add(500, "loader", 1, WORKER)  # in the worker's session, and not below it any more
    machine.run(10, p500=2.0)
    watched.sample()
    assert watched.tag() == ""


def test_a_quota_leaves_fewer_cores_than_there_are(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = machine.watched()
    monkeypatch.setattr(watched, "_quota", 1.0)
    machine.run(10, p300=1.0, p400=1.0)
    watched.sample()
    assert watched.cores == 1.0
    assert watched.tag() == ""  # the other core was free for the others
    monkeypatch.setattr(watched, "_contained", True)
    machine.run(10, p300=0.5, p400=0.5)
    watched.sample()
    assert watched.tag() == "cpu: 25 % of 1 core (stress)"  # in the same container, whose quota they share


def test_a_process_on_a_gpu_in_use_is_one_too_many(machine: Machine) -> None:
    machine.gpu = {0: [], 3: [OTHER, 999]}  # the last has ended
    watched = machine.watched("GPU-0", "GPU-3")
    machine.gpu = {0: [RANK, WORKER], 3: [RANK]}
    machine.run(1)
    watched.sample()
    assert watched.tag() == "gpu 3: 1 process (stress)"


def test_in_a_container_only_who_was_there_before_is_known(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "pid:[4026532001]")
    machine.gpu = {0: [71_001]}
    watched = machine.watched("GPU-0")
    machine.gpu = {0: [71_001, 71_002]}  # the second may be the run's own, as it is called outside
    machine.run(1)
    watched.sample()
    assert watched.tag() == "gpu 0: 1 process"


def test_a_driver_that_does_not_tell_and_a_proc_that_is_none(tmp_path: Path) -> None:
    def broken(_: object) -> dict[int, list[int]]:
        raise RuntimeError("Not Supported")

    watched = CoTenants(["GPU-0"], tmp_path, os.getpid(), time.monotonic, broken)
    with pytest.raises(OSError, match="stat"):
        watched.sample()
    assert watched.tag() == ""


@pytest.fixture
def busy() -> Iterator[Callable[[], None]]:
    """Starts processes that compute all the time, in a session of their own."""
    started = []

    def start() -> None:
        program = "import os\n[os.fork() for _ in range(3)]\nwhile 1: pass"  # eight of them
        started.append(subprocess.Popen([sys.executable, "-c", program], start_new_session=True))

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.slow
def test_a_real_process_that_is_busy_is_found(busy: Callable[[], None]) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", "while 1: pass"])  # it would take what it can get
    try:
        watched = CoTenants([], launcher=launcher.pid)
        busy()

        def told() -> bool:
            watched.sample()
            return "python" in watched.tag()

        wait_for(told)
        assert watched.tag().startswith("cpu: ")
    finally:
        launcher.kill()
        launcher.wait()


def test_the_threshold_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs/machine.md").read_text()
    assert f"more than {module.CPU_THRESHOLD:.0%}".replace("%", " %") in page


def test_a_containers_processes_are_the_runs_though_its_engine_started_them(machine: Machine) -> None:
    """The engine's own process is a child of process 1; the first in the container has the run's folder as a word."""
    for pid, name, parent, session in ((500, "conmon", 1, 500), (501, "python", 500, 501), (502, "python", 501, 501)):
        machine.add(pid, name, parent, session)
    (machine.proc / "501/cmdline").write_bytes(b"python3\0guard.py\0/runs/a\0/home/me\0")
    marked = CoTenants([], machine.proc, LAUNCHER, lambda: machine.now, lambda _: machine.gpu, ["/runs/a"])
    plain = machine.watched()
    machine.run(10, p502=1.5)
    for watched in (marked, plain):
        watched.sample()
    assert marked.tag() == ""
    assert plain.tag() == "cpu: 75 % of 2 cores (python)"
    machine.run(10, p502=1.5)  # Then they end.
    for pid in (500, 501, 502):
        del machine.about[pid]
        shutil.rmtree(machine.proc / str(pid))
    marked.sample()
    assert marked.tag() == ""
