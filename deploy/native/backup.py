"""Backs up and restores a server: both databases, artifacts on disk, settings, secrets and certificate."""

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

IDENTITY = ("settings.json", "secrets.json", "server.env", "tls")  # files in HOME
ARTIFACTS = "artifacts.tar"
MANIFEST = "manifest.json"


def back_up(server: Server, target: Path | None = None, with_artifacts: bool = True) -> Path:
    """Write a backup while the server runs. Returns its folder, which appears only when it is complete.

    The databases are dumped before the artifacts are copied, so that the copy has all artifacts of the dumped runs.
    """
    settings = server.settings
    target = target or settings.home / "backups" / time.strftime("%Y%m%d-%H%M%S")
    if target.exists():
        raise ServerError(f"{target}: exists already. Next: give another folder")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    for database in DATABASES:
        dump_path = str(partial / f"{database}.dump")
        server.database.client("pg_dump", "-U", ROLE, "-Fc", "-f", dump_path, database)
    with tarfile.open(partial / "identity.tar", "w") as archive:
        for name in IDENTITY:
            if (settings.home / name).exists():
                archive.add(settings.home / name, name)
    folder = settings.artifact_folder
    if with_artifacts and folder is not None and folder.exists():
        # The program tar, since it continues if a file grows or vanishes, with exit code 1.
        process = subprocess.run(["tar", "-cf", partial / ARTIFACTS, "-C", folder, "."], capture_output=True, text=True)
        if process.returncode > 1:
            raise ServerError(f"tar: {process.stderr.strip()[-1000:]}")
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
    """Raise ServerError if a backup is damaged."""
    try:
        manifest = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ServerError(f"{backup}: not a backup, since {MANIFEST} is missing. Next: give another folder") from None
    for name, digest in manifest["sha256"].items():
        if not (backup / name).exists() or sha256(backup / name) != digest:
            raise ServerError(f"{backup / name}: is damaged. Next: give another backup")


def restore_identity(home: Path, backup: Path, overwrite: bool, python: str | None = None) -> Settings:
    """Restore settings, secrets and certificate, before anything is started. Returns the settings.

    `python` is the interpreter with MLflow; default: that of the former server, else this one. Raises ServerError if
    there is a server already, unless `overwrite`.
    """
    verify(backup)
    former = load(home) if (home / "settings.json").exists() else None
    if former is not None and not overwrite:
        raise ServerError(f"{home}: has a server already. Next: --overwrite, to replace it by the backup")
    if former is not None:
        Server(former).stop()
    # The program tar: Python's tarfile requires a filter since 3.12, which Debian's 3.11.2 lacks.
    subprocess.run(["tar", "--no-same-owner", "-xf", backup / "identity.tar", "-C", home], check=True)
    settings = load(home)
    # These settings belong to this machine, not to the data.
    settings.python = python or (former.python if former else sys.executable)
    settings.postgresql_bin = find_postgresql()
    settings.save()
    return settings


def restore(server: Server, backup: Path) -> list[Path]:
    """Restore databases and artifacts from a backup, and leave PostgreSQL running.

    Former data is moved aside, not deleted. Returns where it is.
    """
    folder = server.settings.artifact_folder
    with_artifacts = (backup / ARTIFACTS).exists() and folder is not None
    moved_paths = [move_aside(server.database.data), *([move_aside(folder)] if with_artifacts and folder else [])]
    server.database.initialise()
    server.database.start()
    for database in DATABASES:
        dump_path = str(backup / f"{database}.dump")
        server.database.client("pg_restore", "-U", ROLE, "--no-owner", "--exit-on-error", "-d", database, dump_path)
    if with_artifacts and folder:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        subprocess.run(["tar", "-xf", backup / ARTIFACTS, "-C", folder], check=True)
    return [path for path in moved_paths if path is not None]


def move_aside(path: Path) -> Path | None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    return path.rename(path.with_name(f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))


def upgrade(server: Server) -> Path:
    """Make a backup, then migrate both databases to the installed MLflow's schema. Returns the backup's folder."""
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
        process = subprocess.run(argv, env=environ, capture_output=True, text=True, cwd=settings.home)
        if process.returncode:
            stderr = process.stderr.strip()[-2000:]
            raise ServerError(
                f"{' '.join(command[:3])} failed. Next: restore {backup}, the former databases:\n{stderr}"
            )
    server.start()
    return backup


def mlflow_version(settings: Settings) -> str:
    program = "from importlib.metadata import version; print(version('mlflow'))"
    return subprocess.run([settings.python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
