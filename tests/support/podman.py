"""A container image for tests, of this machine's own parts: busybox, and this machine's Python in mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

IMAGE = "localhost/timetrial-tests:1"
# runc, since crun wants a cgroup manager; limits that a machine without many rights may set.
OPTIONS = ["--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
# All that this Python is made of; /usr brings the C library and lscpu.
MOUNTS = sorted({"/usr", sys.prefix, sys.base_prefix})


def why_not() -> str:
    """Make the image; why that, or a container of it, cannot be had here, or nothing."""
    for program in ("podman", "runc", "busybox"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return import_image() or try_container()


def import_image() -> str:
    import io
    import tarfile

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(str(shutil.which("busybox")), "bin/busybox")
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755)):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, mode
            tar.addfile(member)
        for name, target in (("bin/sh", "busybox"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    command = ["podman", "import", "--quiet", "-", IMAGE]
    done = subprocess.run(command, input=content.getvalue(), capture_output=True, check=False)
    return f"podman cannot import an image: {done.stderr.decode()[-200:]}" if done.returncode else ""


def try_container() -> str:
    command = ["podman", "run", "--rm", "--network", "host", *OPTIONS, IMAGE, "/bin/busybox", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"podman cannot run a container: {done.stderr[-200:]}" if done.returncode else ""


def declare(folder: Path, name: str, container: dict[str, object] | None = None, **stack: object) -> None:
    """Write a stack of the image for --config-dir, with this Python mounted into it.

    It keeps its bytecode where the tests do: an environment may hold none, and then torch is compiled at each start.
    """
    kept = os.environ["PYTHONPYCACHEPREFIX"]
    Path(kept).mkdir(exist_ok=True)
    mounts = [*MOUNTS, f"{kept}:{kept}:rw"]
    given = {"engine": "podman", "image": IMAGE, "mounts": mounts, "options": OPTIONS, **(container or {})}
    env = {"PYTHONPYCACHEPREFIX": kept, **stack.pop("env", {})}  # type: ignore[dict-item]
    content = {"name": name, "kind": "container", "python": sys.executable, "container": given, "env": env, **stack}
    (folder / "stack").mkdir(exist_ok=True)
    (folder / f"stack/{name}.yaml").write_text(yaml.safe_dump(content))


def containers() -> list[str]:
    """The names of the containers of runs that are there, running or not."""
    command = ["podman", "ps", "--all", "--format", "{{.Names}}"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name.startswith("timetrial-")]
