"""The commands for users, teams and permissions."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deploy.native.accounts import GRANTABLE, Accounts
from deploy.native.settings import ServerError, load_secrets, write_private


def add(commands: Any) -> None:
    """Add the commands to a parser's subparsers (argparse's class for these is not public)."""
    for name, help_text in (("add-user", "make a user"), ("set-password", "change a user's password")):
        command = commands.add_parser(name, help=f"{help_text}, and print the password once")
        command.add_argument("user")
        command.add_argument(
            "--password-stdin", action="store_true", help="read the password instead of generating one"
        )
    commands.choices["add-user"].add_argument("--admin", action="store_true", help="make an administrator")
    commands.add_parser("remove-user", help="delete a user; their runs stay").add_argument("user")
    commands.add_parser("add-team", help="make a team").add_argument("team")
    commands.add_parser("remove-team", help="delete a team; its members stay users").add_argument("team")
    for name, help_text in (("join", "add users to a team"), ("leave", "remove users from a team")):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("team")
        command.add_argument("users", nargs="+", metavar="user")
    for name, help_text in (("grant", "give a permission on an experiment"), ("revoke", "remove a permission")):
        command = commands.add_parser(name, help=help_text)
        grantee = command.add_mutually_exclusive_group(required=True)
        grantee.add_argument("--team")
        grantee.add_argument("--user")
        if name == "grant":
            command.add_argument("permission", choices=GRANTABLE)
        command.add_argument("experiment", help="name, created if missing; '*' = all")
    commands.add_parser("users", help="list users, teams and their permissions")


def run(accounts: Accounts, arguments: argparse.Namespace) -> int:
    command = arguments.command
    if command in ("add-user", "set-password"):
        typed_password = sys.stdin.readline().rstrip("\n") if arguments.password_stdin else None
        options = {"admin": arguments.admin} if command == "add-user" else {}
        password = getattr(accounts, command.replace("-", "_"))(arguments.user, typed_password, **options)
        print("" if typed_password else password, end="" if typed_password else "\n")
        if command == "set-password" and arguments.user == "admin" and not arguments.uri:
            keep_admin_password(arguments.home, password)
    elif command == "remove-user":
        accounts.remove_user(arguments.user)
    elif command in ("add-team", "remove-team"):
        getattr(accounts, command.replace("-", "_"))(arguments.team)
    elif command in ("join", "leave"):
        for user in arguments.users:
            getattr(accounts, command)(arguments.team, user)
    elif command == "grant":
        accounts.grant(arguments.permission, arguments.experiment, team=arguments.team, user=arguments.user)
    elif command == "revoke":
        accounts.revoke(arguments.experiment, team=arguments.team, user=arguments.user)
    elif command == "users":
        print("\n".join(accounts.table()))
    else:
        raise ServerError(f"{command}: works only for a server on this machine. Next: leave --uri out")
    return 0


def keep_admin_password(home: Path, password: str) -> None:
    secrets = load_secrets(home) | {"admin_password": password}
    write_private(home / "secrets.json", json.dumps(secrets, indent=2) + "\n")
