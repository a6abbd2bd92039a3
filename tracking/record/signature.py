"""Signs values that this user wrote on this machine: an HMAC-SHA256 (RFC 2104) with the user's private key.

The key is only in the user's home. File ownership would prove little: whoever unpacks an archive owns its files.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY_BYTES = 32


def sign(value: Any) -> str | None:
    """The signature of a plain value; None if this user cannot store a key."""
    key = _key()
    return hmac.digest(key, json.dumps(value, sort_keys=True).encode(), "sha256").hex() if key else None


def verify(value: Any, signature: str) -> bool:
    """Whether the signature is this user's; False for values that JSON cannot represent."""
    expected = None
    with suppress(TypeError):
        expected = sign(value)
    return expected is not None and hmac.compare_digest(expected.encode(), signature.encode(errors="replace"))


def _key() -> bytes | None:
    """This user's key, made if missing; None if the home cannot store it."""
    from platformdirs import user_state_path  # Only here: a worker's environment may lack it.

    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        path = user_state_path("timetrial", appauthor=False) / "signing.key"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_key(path)
        key = path.read_bytes()
        return key if len(key) == KEY_BYTES and path.stat().st_uid == os.getuid() else None
    return None


def _make_key(path: Path) -> None:
    """Write a new key atomically. The first of several launchers wins."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by this user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
