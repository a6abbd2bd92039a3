"""How much memory a process can still have, by files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.machine.environment import available_bytes

GIB = 2**30


def laid_out(root: Path, own: str, files: dict[str, object]) -> int:
    """The answer on a machine with 100 GiB available, where control groups have these files."""
    (root / "proc" / "self").mkdir(parents=True)
    kib = 100 * GIB // 1024
    (root / "proc" / "meminfo").write_text(f"MemTotal: {2 * kib} kB\nMemFree: 5 kB\nMemAvailable: {kib} kB\n")
    (root / "proc" / "self" / "cgroup").write_text(own)
    for name, content in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return available_bytes(root / "proc", root / "cgroup")


def v2(group: str, limit: object, used: int, inactive: int = 0) -> dict[str, object]:
    stat = f"anon 5\nfile {inactive + 7}\ninactive_file {inactive}"
    return {f"{group}memory.max": limit, f"{group}memory.current": used, f"{group}memory.stat": stat}


def v1(group: str, limit: int, used: int, inactive: int = 0) -> dict[str, object]:
    stat = f"inactive_file 1\ntotal_inactive_file {inactive}"
    names = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used, "memory.stat": stat}
    return {f"memory/{group}{name}": value for name, value in names.items()}


SLURM = "system.slice/slurm/job_7/step_0/"
UNLIMITED = 9223372036854771712  # what cgroup v1 says for no limit


@pytest.mark.parametrize(
    ("own", "files", "gib"),
    [
        ("0::/\n", {}, 100),
        ("0::/job/step\n", v2("job/step/", 8 * GIB, 3 * GIB), 5),
        ("0::/job/step\n", v2("job/step/", 8 * GIB, 8 * GIB, inactive=2 * GIB), 2),
        ("0::/job/step\n", v2("job/step/", "max", 3 * GIB) | v2("job/", 16 * GIB, 15 * GIB), 1),
        ("0::/job/step\n", v2("job/step/", 300 * GIB, 3 * GIB), 100),
        ("0::/job/step\n", v2("job/step/", 8 * GIB, 9 * GIB), 0),
        ("0::/docker/c0ffee\n", v2("", 8 * GIB, 3 * GIB), 5),
        (f"9:memory:/{SLURM[:-1]}\n4:cpu,cpuacct:/x\n", v1(SLURM, 8 * GIB, 7 * GIB, inactive=3 * GIB), 4),
        ("9:memory:/job\n0::/\n", v1("job/", UNLIMITED, 7 * GIB) | v1("", UNLIMITED, 9 * GIB), 100),
        ("9:memory:/lxc/1\n", v1("", 8 * GIB, 2 * GIB), 6),
        ("0::/job\n", {"job/memory.max": 8 * GIB}, 100),
        ("0::/job\n", {"job/memory.max": "what", "job/memory.current": 1, "job/memory.stat": ""}, 100),
        ("", {}, 100),
    ],
)
def test_the_tightest_limit_counts(tmp_path: Path, own: str, files: dict[str, object], gib: int) -> None:
    assert laid_out(tmp_path, own, files) == gib * GIB


def test_this_machine_has_some() -> None:
    assert 0 < available_bytes() < 2**60
