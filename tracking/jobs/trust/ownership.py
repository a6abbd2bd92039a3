"""Checks that a folder's configuration is this user's own, since acting on a folder executes its configuration.

Resuming a run or following a sweep runs a workload, an interpreter and lines of shell that a file names, and sends the
result to the server that run.json names. So the launcher signs both files when it writes them, and every command that
acts on a folder asks here first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.jobs.trust.executed import EXECUTED, would_run
from tracking.record import documents, files, run_folder, signature
from tracking.request.name_checks import check_text

SIGNATURE = ".signature"


def sign(folder: Path, configs: Sequence[RunConfig], beside: Sequence[RunConfig] = ()) -> None:
    """Sign the configurations and the run.json that the launcher writes into a folder.

    Without a place for a key, nothing is signed. Configurations to be replaced are signed `beside` the new ones: the
    process may be killed before or after it replaces them.
    """
    lines = [signed for each in (configs, beside) if each and (signed := signature.sign(_signed(folder, each)))]
    if lines:
        documents.write_text(folder / SIGNATURE, "\n".join(lines))


def check(folder: Path, configs: Sequence[RunConfig], option: str, trust: bool, how: str = "trust=true") -> None:
    """Raise ConfigError unless this user signed the folder's configurations. The error lists all that they would run.

    `trust`: the user allows them. `option` names the folder; `how` is the option that trusts it.
    """
    for config in configs:
        check_text("", dataclasses.asdict(config))
    signatures = ""
    with suppress(OSError, ValueError):
        signatures = files.read_text(folder / SIGNATURE)
    signed = (_signed(folder, configs), _configurations(configs))
    if trust or any(signature.verify(value, line) for value in signed for line in signatures.split()):
        return
    phrases = [phrase for config in configs for phrase in would_run(config)]
    with suppress(OSError, ValueError):
        phrases.append(f"{EXECUTED['tracking.uri']} {run_folder.read_info(folder).tracking_uri!r}")
    runs = "; ".join(dict.fromkeys(phrases))
    raise ConfigError(
        f"{option}: its configuration was not written by you on this machine, or was changed since. It runs: {runs}."
        f" Next: if you trust its author, add {how}"
    )


def _signed(folder: Path, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """The signed content. Earlier versions signed the configurations only."""
    identity = None
    with suppress(OSError, ValueError):
        identity = documents.read_json(folder / run_folder.RUN)
    return {"configurations": _configurations(configs), "run": identity}


def _configurations(configs: Sequence[RunConfig]) -> list[dict[str, Any]]:
    """The values that differ from the defaults, so that a version with more options signs the same."""
    default = dataclasses.asdict(RunConfig())
    return [_differing(dataclasses.asdict(config), default) for config in configs]


def _differing(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value != default:
            nested = isinstance(value, dict) and isinstance(default, dict)
            differing[key] = _differing(value, default or {}) if nested else value
    return differing
