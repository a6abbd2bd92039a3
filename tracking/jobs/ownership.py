"""Whether a folder's configuration is this user's own, since resuming runs what it names.

A configuration names a workload to import, an interpreter, packages to install and environment variables. So the
launcher signs it when it writes it (HMAC-SHA256, RFC 2104) with a key that lies in the user's home and nowhere else.
The owner of the files would prove little: whoever unpacks an archive owns what is in it.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.run import files

SIGNATURE = ".signature"
KEY_BYTES = 32


def sign(folder: Path, configs: Sequence[RunConfig]) -> None:
    """Sign the configurations that the launcher writes into a folder; not where this user can keep no key."""
    key = _key()
    if key is not None:
        files.remove(folder / SIGNATURE)
        with files.opened(folder / SIGNATURE, "x") as file:
            file.write(_digest(key, configs))


def check_signature(folder: Path, configs: Sequence[RunConfig], given: str) -> None:
    """Raise ConfigError, with all that they would run, where this user has not signed a folder's configurations.

    `given` is the option that asks for them.
    """
    key, signature = _key(), ""
    with suppress(OSError, ValueError):
        signature = files.read_text(folder / SIGNATURE)
    if key is not None and hmac.compare_digest(signature.encode(), _digest(key, configs).encode()):
        return
    runs = "; ".join(dict.fromkeys(phrase for config in configs for phrase in would_run(config)))
    raise ConfigError(
        f"{given}: what it runs was not written by you on this machine, or was changed since: {runs}. If you trust who"
        " made it, add trust=true"
    )


def would_run(config: RunConfig) -> list[str]:
    """What a configuration has a worker run, install and read, a phrase each."""
    stack, phrases = config.stack, [f"the workload {config.model.workload!r}"]
    named = {
        "the interpreter": stack.python, "packages from": stack.index, "PyTorch": stack.torch,
        "packages": " ".join([*stack.requirements, *stack.overrides]), "the data in": config.dataset.path,
        "the container engine": stack.container.engine, "the image": stack.container.image,
        "its options": " ".join(stack.container.options), "its mounts": " ".join(stack.container.mounts),
        "its user": stack.container.user,
    }  # fmt: skip
    phrases += [f"{what} {value!r}" for what, value in named.items() if value]
    phrases += [f"with {variable}={value!r}" for variable, value in sorted(stack.env.items())]
    return phrases


def _digest(key: bytes, configs: Sequence[RunConfig]) -> str:
    """Of what differs from the defaults, so that a version with more options finds the same."""
    default = dataclasses.asdict(RunConfig())
    asked = [_differing(dataclasses.asdict(config), default) for config in configs]
    return hmac.digest(key, json.dumps(asked, sort_keys=True).encode(), "sha256").hex()


def _differing(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value != default:
            nested = isinstance(value, dict) and isinstance(default, dict)
            differing[key] = _differing(value, default or {}) if nested else value
    return differing


def _key() -> bytes | None:
    """The user's key, made where there is none; None where no home can keep it."""
    from platformdirs import user_state_path

    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        path = user_state_path("timetrial", appauthor=False) / "signing.key"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_key(path)
        key = path.read_bytes()
        return key if len(key) == KEY_BYTES and path.stat().st_uid == os.getuid() else None
    return None


def _make_key(path: Path) -> None:
    """Write a new key. The first of several launchers wins, and nobody reads half of one."""
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
