"""python -m deploy.compose_init HOST_NAME: make the passwords and the certificate for deploy/compose.yaml.

Writes generated passwords to deploy/.env, and a self-signed certificate if there is no other. Existing values are kept.
A self-signed certificate that lacks HOST_NAME is made anew.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from pathlib import Path

from deploy.native import certificate
from deploy.native.settings import ServerError, write_private

FOLDER = Path(__file__).parent
GENERATED = ("ADMIN_PASSWORD", "DATABASE_PASSWORD", "FLASK_SECRET_KEY", "S3_ACCESS_KEY", "S3_SECRET_KEY")
HOST_NAME = re.compile(r"[A-Za-z0-9.-]+")


def main(argv: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.compose_init", description=__doc__)
    parser.add_argument("host_name", help="name by which users reach the server")
    arguments = parser.parse_args(argv)
    if not HOST_NAME.fullmatch(arguments.host_name):
        parser.error(
            f"HOST_NAME {arguments.host_name!r}: not a host name. Allowed: letters, digits, dots and hyphens. Next:"
            " give the name by which users reach the server, such as mlflow.example.org"
        )
    path = folder / ".env"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    values = {name: secrets.token_urlsafe(24) for name in GENERATED} | values | {"HOST_NAME": arguments.host_name}
    write_private(path, "".join(f"{name}={value}\n" for name, value in values.items()))
    tls = folder / "compose/tls"
    try:
        if certificate.ensure([arguments.host_name, "localhost"], tls):
            print(f"{tls}/certificate.pem is new, for the new name. Next: copy it to the users' machines")
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{path} and {tls}: ready. Next: docker compose -f {folder / 'compose.yaml'} up -d --build")
    return 0


if __name__ == "__main__":
    sys.exit(main())
