"""A machine cut into shares: equal ones, whole cores, GPUs beside their memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.commands import environment
from tracking.jobs.node import machine_shares
from tracking.jobs.node.machine_shares import Core

# Two sockets of four cores of two threads, numbered as Linux does: 0-3 and 8-11 are the first one's.
TWO_SOCKETS = [Core(number // 4, (number, number + 8)) for number in range(8)]


def test_shares_are_equal_disjoint_and_of_whole_cores() -> None:
    for number in (1, 2, 3, 8):
        cut = machine_shares.cut(number, TWO_SOCKETS, {}, 0)
        threads = [thread for share in cut for thread in share.threads]
        assert len(cut) == number
        assert len(set(threads)) == len(threads) == number * 2 * (8 // number)
        assert all((thread + 8) % 16 in share.threads for share in cut for thread in share.threads)
    assert [share.numa for share in machine_shares.cut(2, TWO_SOCKETS, {}, 0)] == [(0,), (1,)]


def test_a_share_has_gpus_of_its_own_memory_as_far_as_there_are_enough() -> None:
    gpus = {"a": 0, "b": 0, "c": 1, "d": 1}
    assert [share.gpus for share in machine_shares.cut(2, TWO_SOCKETS, gpus, 1)] == [("a",), ("c",)]
    assert [share.gpus for share in machine_shares.cut(4, TWO_SOCKETS, gpus, 1)] == [("a",), ("b",), ("c",), ("d",)]
    unknown = machine_shares.cut(2, TWO_SOCKETS, dict.fromkeys("abcd"), 2)
    assert sorted(gpu for share in unknown for gpu in share.gpus) == ["a", "b", "c", "d"]
    one_socket = machine_shares.cut(2, TWO_SOCKETS, {"a": 0, "b": 0}, 1)
    assert sorted(gpu for share in one_socket for gpu in share.gpus) == ["a", "b"]


def test_too_little_for_so_many_jobs_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.jobs_at_once=9: this machine has 8 cores"):
        machine_shares.cut(9, TWO_SOCKETS, {}, 0)
    with pytest.raises(ConfigError, match="3 GPUs are visible, but 2 jobs of gpus=2 need 4"):
        machine_shares.cut(2, TWO_SOCKETS, {"a": 0, "b": 0, "c": 1}, 2)


def test_cores_are_read_as_the_kernel_tells_them(tmp_path: Path) -> None:
    for node, threads in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = tmp_path / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{threads}\n")
    for thread in range(8):
        folder = tmp_path / f"cpu/cpu{thread}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{thread % 4},{thread % 4 + 4}\n")
    cores = machine_shares.cores_here(tmp_path, {0, 1, 2, 4, 6})
    assert sorted(cores, key=lambda core: core.threads) == [Core(0, (0, 4)), Core(0, (1,)), Core(1, (2, 6))]
    assert machine_shares.cores_here(tmp_path / "nowhere", {3}) == [Core(0, (3,))]


@pytest.mark.parametrize("text", ["0", "0-3", "0-1,4-5,9"])
def test_ranges_are_what_numbers_reads(text: str) -> None:
    assert machine_shares.ranges(machine_shares.numbers(text)) == text


def test_a_device_has_the_numa_node_that_the_kernel_tells(tmp_path: Path) -> None:
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0/numa_node").write_text("1\n")
    assert machine_shares.numa_of_pci("00000000:3B:00.0", tmp_path) == 1
    (tmp_path / "0000:3b:00.0/numa_node").write_text("-1\n")
    assert machine_shares.numa_of_pci("00000000:3B:00.0", tmp_path) is None
    assert machine_shares.numa_of_pci("", tmp_path) is None


def test_containers_of_a_daemon_are_told_of_the_share() -> None:
    [share, _] = machine_shares.cut(2, TWO_SOCKETS, {}, 0)
    told = machine_shares.engine_options("docker", share.environment())
    assert told == ["--cpuset-cpus=0-3,8-11", "--cpuset-mems=0"]
    assert machine_shares.engine_options("apptainer", share.environment()) == []
    assert machine_shares.engine_options("docker", {}) == []


@pytest.mark.slow
def test_a_process_keeps_to_its_share_with_its_children_and_their_memory() -> None:
    thread = min(os.sched_getaffinity(0))
    inner = (
        "import os, json; print(json.dumps([sorted(os.sched_getaffinity(0)),"
        " [line.split()[1] for line in open('/proc/self/numa_maps')][0]]))"
    )
    code = (
        "import subprocess, sys; from tracking.jobs.node.machine_shares import keep_to_share; words = keep_to_share();"
        f" sys.stderr.write(words); subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    )
    own = {machine_shares.CORES: str(thread), machine_shares.MEMORY: "0"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(**own), capture_output=True, text=True, check=True
    )
    affinity, policy = json.loads(ended.stdout)
    assert affinity == [thread]
    if not ended.stderr:  # a container may not be allowed to bind memory, and a note says so
        assert policy == "bind:0"
