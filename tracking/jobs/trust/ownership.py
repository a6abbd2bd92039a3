"""Whether a folder's configuration is this user's own: who acts on a folder does what its configuration says.

To resume a run and to follow a sweep is to run a workload, an interpreter and lines of shell that a file names, and to
send the outcome to the server that run.json names. So the launcher signs both files when it writes them, and whoever
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

    Not where this user can keep no key. What lies there yet is signed `beside` it: whoever replaces configurations may
    be killed before or after that.
    """
    lines = [signed for each in (configs, beside) if each and (signed := signature.of(_signed(folder, each)))]
    if lines:
        documents.write_text(folder / SIGNATURE, "\n".join(lines))


def check(folder: Path, configs: Sequence[RunConfig], given: str, trust: bool, how: str = "trust=true") -> None:
    """Raise ConfigError, with all that they would run, where this user has not signed a folder's configurations.

    With `trust` the user has said that they may run. `given` is what asks for them, and `how` what says so.
    """
    for config in configs:
        check_text("", dataclasses.asdict(config))
    written = ""
    with suppress(OSError, ValueError):
        written = files.read_text(folder / SIGNATURE)
    signed = (_signed(folder, configs), _configurations(configs))
    if trust or any(signature.is_own(value, line) for value in signed for line in written.split()):
        return
    phrases = [phrase for config in configs for phrase in would_run(config)]
    with suppress(OSError, ValueError):
        phrases.append(f"{EXECUTED['tracking.uri']} {run_folder.read_info(folder).tracking_uri!r}")
    runs = "; ".join(dict.fromkeys(phrases))
    raise ConfigError(
        f"{given}: what it runs was not written by you on this machine, or was changed since: {runs}. If you trust who"
        f" made it, add {how}"
    )


def _signed(folder: Path, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """What is signed. Earlier versions signed the configurations alone."""
    identity = None
    with suppress(OSError, ValueError):
        identity = documents.read_json(folder / run_folder.RUN)
    return {"configurations": _configurations(configs), "run": identity}


def _configurations(configs: Sequence[RunConfig]) -> list[dict[str, Any]]:
    """What differs from the defaults, so that a version with more options finds the same."""
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
