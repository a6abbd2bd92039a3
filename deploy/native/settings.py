"""The folder of a server: its settings, its secrets, and the user who owns it.

HOME/settings.json    the settings of `init`: names, address, artifacts, default permission, workers
HOME/secrets.json     generated passwords and keys, mode 0600
HOME/server.env       NAME=VALUE lines for MLflow's environment, such as S3 keys, mode 0600
HOME/database/        PostgreSQL's data, socket and log
HOME/artifacts/       artifacts, if they are kept on disk
HOME/tls/             certificate.pem, key.pem
HOME/{sockets,logs,nginx,backups,tmp}/
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

PERMISSIONS = ("READ", "NO_PERMISSIONS")
SERVICE_USER = "mlflow"  # default user of a server that root makes
SOCKET_PATH_MAX = 100  # bytes; the kernel allows 107 (unix(7)), and PostgreSQL appends a name to the folder
MODULES = ("mlflow", "flask_wtf", "psycopg")


class ServerError(Exception):
    """A problem that the operator has to fix; the message says what to do."""


def default_home() -> Path:
    return Path("/var/lib/timetrial-server") if os.geteuid() == 0 else Path.home() / "timetrial-server"


def machine_names() -> list[str]:
    names = dict.fromkeys((socket.getfqdn(), socket.gethostname(), "localhost"))
    return [name for name in names if name and not name.endswith(".arpa")]


@dataclass
class Settings:
    home: Path
    names: list[str] = field(default_factory=machine_names)  # host names of the server, also in the certificate
    listen: str = "127.0.0.1:8443"  # address of nginx, the only port of the server
    artifacts: str = ""  # a folder or s3://BUCKET/PREFIX; empty = HOME/artifacts
    default_permission: str = "READ"  # of every user on every experiment
    workers: int = field(default_factory=lambda: max(2, min(8, os.cpu_count() or 2)))
    python: str = sys.executable
    postgresql_bin: str = field(default_factory=lambda: find_postgresql())

    @property
    def artifacts_destination(self) -> str:
        return self.artifacts or str(self.home / "artifacts")

    @property
    def artifact_folder(self) -> Path | None:
        """The folder of artifacts on this machine's disk; None if they are elsewhere."""
        return None if "://" in self.artifacts_destination else Path(self.artifacts_destination)

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"https://{self.names[0]}:{self.port}"

    def save(self) -> None:
        content = asdict(self)
        del content["home"]
        write_private(self.home / "settings.json", json.dumps(content, indent=2) + "\n")


def load(home: Path) -> Settings:
    """The settings of a server. Raises ServerError if `init` has not made one."""
    try:
        content = json.loads((home / "settings.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ServerError(f"{home}: no server here. Next: python -m deploy.native --home {home} init") from None
    return Settings(home=home, **content)


def check_settings(settings: Settings) -> None:
    """Raise ServerError for settings that cannot work."""
    socket_path = settings.home / "database/socket/.s.PGSQL.5432"
    if len(os.fsencode(socket_path)) > SOCKET_PATH_MAX:
        raise ServerError(f"--home {settings.home}: too long for a Unix socket. Allowed: up to 70 characters")
    if settings.default_permission not in PERMISSIONS:
        raise ServerError(
            f"--default-permission {settings.default_permission}: no such permission. Allowed: {', '.join(PERMISSIONS)}"
        )
    address, _, port = settings.listen.rpartition(":")
    if not address or not port.isdecimal():
        raise ServerError(f"--listen {settings.listen}: not an address. Allowed: ADDRESS:PORT, such as 0.0.0.0:8443")
    if not settings.names:
        raise ServerError("--name: is missing. Next: give at least one host name")
    if shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
        raise ServerError("nginx is not installed. Next, on Debian: apt-get install nginx")
    program = "import importlib.util as u, sys; sys.exit(' '.join(m for m in sys.argv[1:] if not u.find_spec(m)) or 0)"
    process = subprocess.run([settings.python, "-c", program, *MODULES], capture_output=True, text=True)
    if process.returncode:
        raise ServerError(
            f"{settings.python} lacks {process.stderr.strip()}. Next: {settings.python} -m pip install -r"
            " deploy/requirements.txt"
        )


def find_postgresql() -> str:
    """The folder of the newest PostgreSQL's programs, in Debian's place or on the PATH; empty if not installed."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return str(max(versions, key=lambda path: int(path.parent.name)))
    program = shutil.which("initdb")
    return str(Path(program).resolve().parent) if program else ""


def write_private(path: Path, text: str) -> None:
    """Write atomically a file that only its owner may read. It belongs to the owner of its folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=0o600)
    temporary.write_text(text, encoding="utf-8")
    give_to_owner(temporary)
    temporary.replace(path)


def private_folder(path: Path) -> Path:
    if not path.exists():
        path.mkdir(mode=0o700)
        give_to_owner(path)
    return path


def give_to_owner(path: Path) -> None:
    """Give a file that root has made to the owner of its folder."""
    if os.geteuid() == 0:
        folder_stat = path.parent.stat()
        os.chown(path, folder_stat.st_uid, folder_stat.st_gid)


def load_secrets(home: Path) -> dict[str, str]:
    """The server's secrets. Missing ones are generated and kept."""
    path = home / "secrets.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    names = ("admin_password", "database_password", "superuser_password", "flask_secret_key")
    missing = {name: secrets.token_urlsafe(24) for name in names if name not in stored}
    if missing:
        stored |= missing
        write_private(path, json.dumps(stored, indent=2) + "\n")
    return stored


def server_environment(home: Path) -> dict[str, str]:
    """The variables in server.env. Empty lines and those that begin with # are skipped."""
    path = home / "server.env"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = [line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def make_home(home: Path, user: str | None) -> None:
    """Make the server's folder for `user`. Root also creates a missing user.

    Raises ServerError if the folder belongs to another user.
    """
    if os.geteuid() == 0:
        user = user or (owner(home).pw_name if home.exists() else SERVICE_USER)
        if user not in {entry.pw_name for entry in pwd.getpwall()}:
            subprocess.run(["useradd", "--system", "--user-group", "--home-dir", str(home), user], check=True)
    elif user not in (None, pwd.getpwuid(os.geteuid()).pw_name):
        raise ServerError(f"--run-as {user}: only root can choose another user. Next: leave it out")
    service_user = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != service_user.pw_uid and any(home.iterdir()):
        raise ServerError(
            f"{home}: belongs to {owner(home).pw_name}, not to {service_user.pw_name}. Next: give another --home"
        )
    if os.geteuid() == 0:
        os.chown(home, service_user.pw_uid, service_user.pw_gid)
    # If the server runs as root, PostgreSQL's own user must be able to enter the folder.
    home.chmod(0o711 if service_user.pw_uid == 0 else 0o700)


def owner(home: Path) -> pwd.struct_passwd:
    return pwd.getpwuid(home.stat().st_uid)


def become_owner(home: Path, python: str, command: str, arguments: list[str]) -> None:
    """As root, execute this `command` again as the server's owner.

    Raises ServerError if that user cannot run the interpreter.
    """
    if os.geteuid() != 0 or not home.exists() or owner(home).pw_uid == 0:
        return
    user = owner(home)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    environ = {**os.environ, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    try:
        os.execve(python, [python, "-m", "deploy.native", *arguments], environ)
    except OSError as error:
        is_new = command in ("init", "restore")
        raise ServerError(
            f"{user.pw_name} cannot run {python} ({error.strerror}). Next: give {'' if is_new else 'init '}--python an"
            f" interpreter outside of other users' home folders{', or --run-as a user who can run this one' * is_new}"
        ) from None
