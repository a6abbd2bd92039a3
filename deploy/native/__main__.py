"""python -m deploy.native: a tracking server of a team, of Debian's PostgreSQL and nginx, and MLflow with users.

No root, no containers and no systemd are needed. docs/server.md says how it is used.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from deploy.native import account_commands, accounts, backup, certificate, settings
from deploy.native.services import Server
from deploy.native.settings import ServerError, Settings

WATCH_SEC = 5.0
FOLDERS = ("sockets", "logs", "nginx", "backups", "artifacts", "tmp")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m deploy.native", description=__doc__)
    top.add_argument("--home", type=Path, default=settings.default_home(), help="the server's folder (%(default)s)")
    top.add_argument("--uri", help="for users, teams and permissions of a server elsewhere: https://HOST:PORT")
    commands = top.add_subparsers(dest="command", required=True)
    add = commands.add_parser

    init = add("init", help="make a server, or change its settings; secrets and data that exist are kept")
    init.add_argument("--name", action="append", dest="names", help="host name that users call; may be repeated")
    init.add_argument("--listen", help="ADDRESS:PORT of the TLS proxy (127.0.0.1:8443: this machine alone)")
    init.add_argument("--artifacts", help="folder, or s3://BUCKET/PREFIX with its keys in HOME/server.env")
    init.add_argument("--default-permission", choices=settings.PERMISSIONS, help="of all users on all experiments")
    init.add_argument("--workers", type=int, help="processes of MLflow (one a core, 2 to 8)")
    init.add_argument("--certificate", type=Path, help="PEM; without it, one that signs itself")
    init.add_argument("--key", type=Path, help="PEM, of the certificate")
    init.add_argument("--run-as", metavar="USER", help="for root: who runs the server (mlflow, made if need be)")
    init.add_argument("--python", help="interpreter that has MLflow (the one that runs this)")

    add("start", help="start what is not running")
    add("stop", help="stop all of it")
    add("status", help="a line a service; exit code 1 where one is down")
    add("run", help="start, and start again whatever ends, until told to stop: for systemd")

    account_commands.add(commands)

    save = add("backup", help="databases, artifacts on disk, secrets, into a folder; the server works on")
    save.add_argument("folder", nargs="?", type=Path, help="(HOME/backups/<time>)")
    save.add_argument("--without-artifacts", action="store_true")
    load = add("restore", help="make a server from a backup, and start it")
    load.add_argument("folder", type=Path)
    load.add_argument("--overwrite", action="store_true", help="in place of the server that is there")
    load.add_argument("--run-as", metavar="USER", help="for root: who runs the server")
    load.add_argument("--python", help="interpreter that has MLflow (the one that runs this)")
    add("upgrade", help="bring the databases to the installed MLflow's schema, after a backup")
    return top


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(words)
    arguments.home = arguments.home.expanduser().absolute()
    os.umask(0o077)
    try:
        if arguments.command in ("init", "restore"):
            settings.make_home(arguments.home, arguments.run_as)
        if arguments.command == "init":
            certificate.install(arguments.home, arguments.certificate, arguments.key)
        if not arguments.uri:
            settings.become_owner(arguments.home, interpreter(arguments), arguments.command, words)
        return run(arguments)
    except (ServerError, OSError) as error:  # OSError: such as a folder that this user may not read
        print(error, file=sys.stderr)
        return 1


def interpreter(arguments: argparse.Namespace) -> str:
    if arguments.command in ("init", "restore") and arguments.python:
        return str(arguments.python)
    known = (arguments.home / "settings.json").exists()
    return settings.load(arguments.home).python if known else sys.executable


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "init":
        return init(arguments)
    if arguments.command == "restore":
        return restore(arguments)
    if arguments.uri:
        return account_commands.run(accounts.over_https(arguments.uri), arguments)
    server = Server(settings.load(arguments.home))
    if arguments.command in ("start", "stop"):
        getattr(server, arguments.command)()
        return status(server) if arguments.command == "start" else 0
    if arguments.command == "status":
        return status(server)
    if arguments.command == "run":
        return keep_running(server)
    if arguments.command == "backup":
        print(backup.back_up(server, arguments.folder, not arguments.without_artifacts))
        return 0
    if arguments.command == "upgrade":
        print(f"upgraded; the databases as they were: {backup.upgrade(server)}")
        return status(server)
    password = settings.load_secrets(arguments.home)["admin_password"]
    return account_commands.run(accounts.over_socket(server.mlflow.socket, password), arguments)


def init(arguments: argparse.Namespace) -> int:
    home = arguments.home
    known = (home / "settings.json").exists()
    config = settings.load(home) if known else Settings(home)
    for name in ("names", "listen", "artifacts", "default_permission", "workers", "python"):
        if getattr(arguments, name) is not None:
            setattr(config, name, getattr(arguments, name))
    settings.check_settings(config)
    config.save()
    for name in FOLDERS:
        settings.private_folder(home / name)
    if certificate.ensure(config):
        print(f"{home}/tls/certificate.pem is a new one, for the new names: copy it to the users' machines")
    Server(config).database.initialise()
    print(f"{home}: ready; python -m deploy.native --home {home} start")
    return 0


def restore(arguments: argparse.Namespace) -> int:
    folder = arguments.folder.absolute()
    config = backup.restore_identity(arguments.home, folder, arguments.overwrite, arguments.python)
    settings.check_settings(config)
    for name in FOLDERS:
        settings.private_folder(config.home / name)
    server = Server(config)
    for path in backup.restore(server, folder):
        print(f"what was there before: {path}")
    server.start()
    return status(server)


def status(server: Server) -> int:
    states = {name: service.running() for name, service in server.services.items()}
    for name, running in states.items():
        print(f"{name}: {'running' if running else 'down'}")
    if all(states.values()):
        home = server.settings.home
        print(f"users: MLFLOW_TRACKING_URI={server.settings.url}; certificate to trust: {home}/tls/certificate.pem")
    return 0 if all(states.values()) else 1


def keep_running(server: Server) -> int:
    def stop(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            for name, service in server.services.items():
                if not service.running():
                    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} starting {name}", flush=True)
                    service.start()
            time.sleep(WATCH_SEC)
    except KeyboardInterrupt:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
