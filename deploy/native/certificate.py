"""The TLS certificate: the operator's, or a self-signed one."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

from deploy.native.settings import ServerError, private_folder, write_private

DAYS = 825  # the longest lifetime that all clients accept
OUR_SUBJECT = "tracking server"


def install(home: Path, certificate: Path | None, key: Path | None) -> None:
    """Copy the operator's certificate and key into HOME/tls, before root becomes a user who cannot read them.

    Raises ServerError.
    """
    if (certificate is None) != (key is None):
        raise ServerError("--certificate or --key: one of them is missing. Next: give both or neither")
    if certificate is not None and key is not None:
        folder = private_folder(home / "tls")
        write_private(folder / "certificate.pem", certificate.read_text(encoding="utf-8"))
        write_private(folder / "key.pem", key.read_text(encoding="utf-8"))


def ensure(names: list[str], folder: Path) -> bool:
    """Make a self-signed certificate in `folder`, unless one exists that covers every name.

    Returns whether it replaces another one, which the users' machines trust. The operator's own is left alone.
    """
    private_folder(folder)
    path = folder / "certificate.pem"
    exists = path.exists()
    if exists and (
        OUR_SUBJECT not in openssl_output(path, "-subject") or all(covers_name(path, name) for name in names)
    ):
        return False
    self_sign(names, folder)
    return exists


def covers_name(certificate: Path, name: str) -> bool:
    check = "-checkip" if is_address(name) else "-checkhost"
    return "does match certificate" in openssl_output(certificate, check, name)


def openssl_output(certificate: Path, *options: str) -> str:
    """openssl's output about a certificate."""
    command = ["openssl", "x509", "-noout", *options, "-in", str(certificate)]
    return subprocess.run(command, capture_output=True, text=True).stdout


def self_sign(names: list[str], folder: Path) -> None:
    """Make a self-signed certificate for these names and the loopback address. Clients trust it by its file."""
    subjects = ["IP:127.0.0.1", *(f"{'IP' if is_address(name) else 'DNS'}:{name}" for name in names)]
    (folder / "key.pem").touch(mode=0o600)
    process = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", str(DAYS), "-subj", f"/CN={OUR_SUBJECT}", "-addext", f"subjectAltName={','.join(subjects)}",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")],
        capture_output=True, text=True,
    )  # fmt: skip
    if process.returncode:
        raise ServerError(f"openssl: {process.stderr.strip()[-500:]}")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
