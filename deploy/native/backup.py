"""Back up and restore: both databases, the artifacts on disk, and what the server needs to be itself again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from deploy.native.postgresql import DATABASES, ROLE
from deploy.native.services import Server
from deploy.native.settings import ServerError, Settings, find_postgresql, load

IDENTITY = ("settings.json", "secrets.json", "server.env", "tls")  # what of HOME makes a server itself
ARTIFACTS = "artifacts.tar"
MANIFEST = "manifest.json"


def back_up(server: Server, target: Path | None = None, with_artifacts: bool = True) -> Path:
    """Write a backup while the server works on, and return its folder, which is not there before it is complete.

    The databases are dumped before the artifacts are copied: what a dumped run refers to is in the copy.
    """
    settings = server.settings
    target = target or settings.home / "backups" / time.strftime("%Y%m%d-%H%M%S")
    if target.exists():
        raise ServerError(f"{target}: exists already")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    for database in DATABASES:
        dump = str(partial / f"{database}.dump")
        server.database.client("pg_dump", "-U", ROLE, "-Fc", "-f", dump, database)
    with tarfile.open(partial / "identity.tar", "w") as archive:
        for name in IDENTITY:
            if (settings.home / name).exists():
                archive.add(settings.home / name, name)
    folder = settings.artifact_folder
    if with_artifacts and folder is not None and folder.exists():
        # tar's own program: it goes on where a file grows or vanishes under it, and says so with exit code 1.
        done = subprocess.run(["tar", "-cf", partial / ARTIFACTS, "-C", folder, "."], capture_output=True, text=True)
        if done.returncode > 1:
            raise ServerError(f"tar: {done.stderr.strip()[-1000:]}")
    files = sorted(path for path in partial.iterdir())
    manifest = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "mlflow": mlflow_version(settings),
        "postgresql": server.database.sql("SHOW server_version"),
        "artifacts": ARTIFACTS in {path.name for path in files} or settings.artifacts_destination,
        "sha256": {path.name: sha256(path) for path in files},
    }
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for path in partial.iterdir():
        path.chmod(0o600)
    partial.rename(target)
    return target


def verify(backup: Path) -> None:
    """Raises ServerError where a backup is not as it was written."""
    try:
        manifest = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ServerError(f"{backup}: no backup: there is no {MANIFEST}") from None
    for name, digest in manifest["sha256"].items():
        if not (backup / name).exists() or sha256(backup / name) != digest:
            raise ServerError(f"{backup / name}: is not what was written; take another backup")


def restore_identity(home: Path, backup: Path, overwrite: bool, python: str | None = None) -> Settings:
    """Settings, secrets and certificate, before anything is started. Raises ServerError where a server is there.

    `python` is the interpreter that has MLflow; by default that of the server that was there, else this one.
    """
    verify(backup)
    here = load(home) if (home / "settings.json").exists() else None
    if here is not None and not overwrite:
        raise ServerError(f"{home}: holds a server; --overwrite puts the backup in its place")
    if here is not None:
        Server(here).stop()
    # tar's own program: Python's asks for a filter since 3.12, and has none in Debian's 3.11.2.
    subprocess.run(["tar", "--no-same-owner", "-xf", backup / "identity.tar", "-C", home], check=True)
    settings = load(home)
    # What belongs to this machine rather than to the data.
    settings.python = python or (here.python if here else sys.executable)
    settings.postgresql_bin = find_postgresql()
    settings.save()
    return settings


def restore(server: Server, backup: Path) -> list[Path]:
    """Make the databases and artifacts those of a backup; PostgreSQL is left running.

    What was there before is moved aside, not deleted; returns where to.
    """
    folder = server.settings.artifact_folder
    with_artifacts = (backup / ARTIFACTS).exists() and folder is not None
    moved = [moved_aside(server.database.data), *([moved_aside(folder)] if with_artifacts and folder else [])]
    server.database.initialise()
    server.database.start()
    for database in DATABASES:
        dump = str(backup / f"{database}.dump")
        server.database.client("pg_restore", "-U", ROLE, "--no-owner", "--exit-on-error", "-d", database, dump)
    if with_artifacts and folder:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        subprocess.run(["tar", "-xf", backup / ARTIFACTS, "-C", folder], check=True)
    return [path for path in moved if path is not None]


def moved_aside(path: Path) -> Path | None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    return path.rename(path.with_name(f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))


def upgrade(server: Server) -> Path:
    """Bring both databases to the schema of the installed MLflow, after a backup, whose folder is returned."""
    settings = server.settings
    server.database.start()
    backup = back_up(server, with_artifacts=False)
    server.nginx.stop()
    server.mlflow.stop()
    commands = (
        ("mlflow", "db", "upgrade", server.database.uri("tracking")),
        ("mlflow.server.auth", "db", "upgrade", "--url", server.database.uri("auth")),
    )
    environ = {**os.environ, **server.database.environment}
    for command in commands:
        argv = [settings.python, "-m", *command]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, cwd=settings.home)
        if done.returncode:
            words = done.stderr.strip()[-2000:]
            raise ServerError(f"{' '.join(command[:3])} failed; {backup} has the databases as they were:\n{words}")
    server.start()
    return backup


def mlflow_version(settings: Settings) -> str:
    program = "from importlib.metadata import version; print(version('mlflow'))"
    return subprocess.run([settings.python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
