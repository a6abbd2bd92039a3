"""The TLS certificate: the operator's, or one that signs itself."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

from deploy.native.settings import ServerError, Settings, private_folder, write_private

DAYS = 825  # the longest that some clients accept


def install(home: Path, certificate: Path | None, key: Path | None) -> None:
    """Copy the operator's certificate and key into HOME/tls: before root becomes somebody who cannot read them."""
    if (certificate is None) != (key is None):
        raise ServerError("--certificate and --key: give both or neither")
    if certificate is not None and key is not None:
        folder = private_folder(home / "tls")
        write_private(folder / "certificate.pem", certificate.read_text(encoding="utf-8"))
        write_private(folder / "key.pem", key.read_text(encoding="utf-8"))


def ensure(settings: Settings) -> None:
    """Make a certificate that signs itself where there is none."""
    folder = private_folder(settings.home / "tls")
    if not (folder / "certificate.pem").exists():
        sign_itself(settings.names, folder)


def sign_itself(names: list[str], folder: Path) -> None:
    """A certificate for these names and the loopback address; clients trust it by its file."""
    subjects = ["IP:127.0.0.1", *(f"{'IP' if is_address(name) else 'DNS'}:{name}" for name in names)]
    (folder / "key.pem").touch(mode=0o600)
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", str(DAYS), "-subj", "/CN=tracking server", "-addext", f"subjectAltName={','.join(subjects)}",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise ServerError(f"openssl: {done.stderr.strip()[-500:]}")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
