"""python -m deploy.native: a team's tracking server: Debian's PostgreSQL and nginx, and MLflow with users.

It needs neither root nor containers nor systemd. See docs/server.md.
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
    top.add_argument("--uri", help="https://HOST:PORT of another server, to manage its users, teams and permissions")
    commands = top.add_subparsers(dest="command", required=True)
    add = commands.add_parser

    init = add("init", help="make a server, or change its settings; existing secrets and data are kept")
    init.add_argument("--name", action="append", dest="names", help="host name of the server; may be repeated")
    init.add_argument("--listen", help="ADDRESS:PORT of the TLS proxy (127.0.0.1:8443: only this machine)")
    init.add_argument("--artifacts", help="folder, or s3://BUCKET/PREFIX with its keys in HOME/server.env")
    init.add_argument("--default-permission", choices=settings.PERMISSIONS, help="of all users on all experiments")
    init.add_argument("--workers", type=int, help="number of MLflow processes (one for each core, 2 to 8)")
    init.add_argument("--certificate", type=Path, help="PEM file (a self-signed certificate)")
    init.add_argument("--key", type=Path, help="PEM file with the certificate's key")
    init.add_argument("--run-as", metavar="USER", help="for root: user of the server (mlflow, created if missing)")
    init.add_argument("--python", help="interpreter with MLflow (the current one)")

    add("start", help="start services that are down")
    add("stop", help="stop all services")
    add("status", help="show each service; exit code 1 if one is down")
    add("run", help="start all services, and restart those that end: for systemd")

    account_commands.add(commands)

    backup_parser = add(
        "backup", help="save databases, artifacts on disk and secrets to a folder, while the server runs"
    )
    backup_parser.add_argument("folder", nargs="?", type=Path, help="(HOME/backups/<time>)")
    backup_parser.add_argument("--without-artifacts", action="store_true")
    restore_parser = add("restore", help="make a server from a backup, and start it")
    restore_parser.add_argument("folder", type=Path)
    restore_parser.add_argument("--overwrite", action="store_true", help="replace an existing server")
    restore_parser.add_argument("--run-as", metavar="USER", help="for root: user of the server")
    restore_parser.add_argument("--python", help="interpreter with MLflow (the current one)")
    add("upgrade", help="make a backup, then migrate the databases to the installed MLflow's schema")
    return top


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    arguments.home = arguments.home.expanduser().absolute()
    os.umask(0o077)
    try:
        if arguments.command in ("init", "restore"):
            settings.make_home(arguments.home, arguments.run_as)
        if arguments.command == "init":
            certificate.install(arguments.home, arguments.certificate, arguments.key)
        if not arguments.uri:
            settings.become_owner(arguments.home, interpreter(arguments), arguments.command, argv)
        return run(arguments)
    except (ServerError, OSError) as error:  # OSError: such as a folder that this user may not read
        print(error, file=sys.stderr)
        return 1


def interpreter(arguments: argparse.Namespace) -> str:
    if arguments.command in ("init", "restore") and arguments.python:
        return str(arguments.python)
    exists = (arguments.home / "settings.json").exists()
    return settings.load(arguments.home).python if exists else sys.executable


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
        print(f"upgraded; backup of the former databases: {backup.upgrade(server)}")
        return status(server)
    password = settings.load_secrets(arguments.home)["admin_password"]
    return account_commands.run(accounts.over_socket(server.mlflow.socket, password), arguments)


def init(arguments: argparse.Namespace) -> int:
    home = arguments.home
    exists = (home / "settings.json").exists()
    config = settings.load(home) if exists else Settings(home)
    for name in ("names", "listen", "artifacts", "default_permission", "workers", "python"):
        if getattr(arguments, name) is not None:
            setattr(config, name, getattr(arguments, name))
    settings.check_settings(config)
    config.save()
    for name in FOLDERS:
        settings.private_folder(home / name)
    if certificate.ensure(config.names, home / "tls"):
        print(f"{home}/tls/certificate.pem is new, for the new names. Next: copy it to the users' machines")
    Server(config).database.initialise()
    print(f"{home}: ready. Next: python -m deploy.native --home {home} start")
    return 0


def restore(arguments: argparse.Namespace) -> int:
    folder = arguments.folder.absolute()
    config = backup.restore_identity(arguments.home, folder, arguments.overwrite, arguments.python)
    settings.check_settings(config)
    for name in FOLDERS:
        settings.private_folder(config.home / name)
    server = Server(config)
    for path in backup.restore(server, folder):
        print(f"the former content was moved to {path}")
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
