"""A fingerprint as a table for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from tracking.machine.environment.fingerprint import Fingerprint


def format_table(fingerprint: Fingerprint) -> str:
    """A fingerprint as text for a terminal, without packages, diff and environment variables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False)
    for name, value in _rows(fingerprint):
        table.add_row(name, value)
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(table, markup=False)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().strip("\n").splitlines()) + "\n"


def _rows(fingerprint: Fingerprint) -> Iterator[tuple[str, str]]:
    software, machine, git = (fingerprint.get(part, {}) for part in ("software", "host", "git"))
    in_use = {gpu.get("index") for gpu in fingerprint.get("used", [])}
    for gpu in fingerprint.get("gpus", []):
        facts = [gpu.get("name", "unknown")]
        facts += [f"{gpu['memory_bytes'] / 2**30:.1f} GiB"] if "memory_bytes" in gpu else []
        facts += [f"{gpu['power_limit_watts']:.0f} W"] if "power_limit_watts" in gpu else []
        facts += [f"{gpu['max_sm_clock_mhz']} MHz"] if "max_sm_clock_mhz" in gpu else []
        facts += [f"{gpu['nvlink_links']} NVLinks"] if "nvlink_links" in gpu else []
        facts += [f"{len(gpu['mig_devices'])} MIG devices"] if "mig_devices" in gpu else []
        yield f"GPU {gpu['index']}", ", ".join(facts) + (" (in use)" if gpu["index"] in in_use else "")
    if not fingerprint.get("gpus"):
        yield "GPUs", "none" if fingerprint.get("used") == [] else "unknown"
    if "class" in fingerprint.get("topology", {}):
        yield "topology", fingerprint["topology"]["class"]
    for key in ("driver", "driver_cuda", "torch", "cuda", "cudnn", "nccl", "python"):
        if key in software:
            yield key.replace("_", " "), software[key]
    for key in ("node", "cpu", "sockets", "cores", "threads", "numa_nodes", "os", "kernel", "container", "image"):
        if key in machine:
            yield key.replace("_", " "), str(machine[key])
    if "memory_bytes" in machine:
        yield "memory", f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    if git:
        dirty = {True: " (dirty)", False: ""}.get(git.get("dirty"), " (dirty or not: unknown)")
        yield "git", f"{git['commit']} {git.get('branch', '')}".strip() + dirty
    yield "packages", str(len(software.get("packages", {})))
