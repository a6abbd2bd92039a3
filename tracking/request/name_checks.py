"""Refuses values that no file or server could hold: wrong names, numbers and control characters, and secrets."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from conf.schema import ConfigError, RunConfig
from tracking.base import quantities
from tracking.base.paths import with_home
from tracking.base.safe_text import breaks_a_line, one_line
from tracking.base.secrets import MIN_CHARS, REDACTED, URL_PASSWORD, is_secret_name, redacted, strip_credentials

LARGEST = 1e50  # the largest number with a point; far above any that has a use
MAX_PATH_BYTES = 4096 - 400  # Linux's limit for a path, minus the names of a sweep, a run and a file
MAX_NAME = 40  # characters: a folder's name, up to 255 bytes, has four such parts, a time, and swept values
NAME_PATTERN = rf"[\w+-][\w.+-]{{0,{MAX_NAME - 1}}}"
MAX_SHOWN_CHARS = 200  # characters of a refused value in its message
MAX_EXPERIMENT = 500  # characters, MLflow's limit
MODEL_NAME_PATTERN = r"[A-Za-z0-9][\w. -]{0,249}"  # stricter than MLflow: quotes would break the filter of a search
# Metrics of scripts, programs and logs may not have these names.
RESERVED_NAMES = (quantities.TARGET_REACHED, quantities.WORLD_SIZE)
URI_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql")


def is_reserved(metric: str) -> bool:
    """Whether a metric of this name is timetrial's own."""
    return metric.startswith(quantities.RESERVED) or metric in RESERVED_NAMES


def check_names(config: RunConfig) -> None:
    """Raise ConfigError for wrong names, and for options that an empty shell variable left empty."""
    for key, value in {"resume": config.resume, "sweep.resume": config.sweep.resume}.items():
        if value is not None and not value.strip():
            expected = "folder of the interrupted run" if key == "resume" else "id of the sweep"
            raise ConfigError(f"{key}=: is empty. Next: give the {expected}, or leave {key} out for a new run")
    paths = {
        "dataset.path": config.dataset.path, "dataset.tokenizer": config.dataset.tokenizer,
        "data_dir": config.data_dir, "program.cwd": config.program.cwd,
    }  # fmt: skip
    for key, value in paths.items():
        if value is not None and not value.strip():
            kind = "tokenizer" if key == "dataset.tokenizer" else "folder"
            raise ConfigError(f"{key}=: is empty. Next: give a {kind}, or leave it out")
    if config.trust and not (config.resume or config.sweep.resume):
        raise ConfigError(
            "trust=true: has no effect without resume= or sweep.resume=. Next: give one of them, or leave it out"
        )
    check_registered_name(config)
    names = {
        "model.name": config.model.name,
        "dataset.name": config.dataset.name,
        "precision.name": config.precision.name,
        "stack.name": config.stack.name,
    }
    for key, name in names.items():
        check_name(key, name)
    check_experiment("tracking.experiment", config.tracking.experiment)
    check_runs_dir(config.runs_dir)


def check_name(key: str, name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name, re.ASCII):
        raise ConfigError(
            f"{key}={one_line(name)}: cannot name folders and runs. Allowed: 1 to {MAX_NAME} ASCII letters, digits,"
            " dots, dashes and underscores, the first not a dot"
        )


def check_experiment(key: str, experiment: str) -> None:
    if not experiment.strip():
        raise ConfigError(f"{key}=: is empty. Next: give a name for the experiment in MLflow")
    if len(experiment) > MAX_EXPERIMENT or not experiment.isprintable():
        raise ConfigError(
            f"{key}={experiment[:40]!r}...: has {len(experiment)} characters. Allowed by MLflow: up to"
            f" {MAX_EXPERIMENT}, in one line"
        )


def check_runs_dir(runs_dir: str) -> None:
    """Raise ConfigError for a path that cannot be a folder."""
    if not runs_dir.strip():
        raise ConfigError("runs_dir=: is empty. Next: give the folder for run folders, or leave it out")
    folder, why = Path(runs_dir).absolute(), ""
    try:
        nearest = next((path for path in (folder, *folder.parents) if path.is_symlink() or path.exists()), folder)
        why = "" if nearest.is_dir() else f"{nearest} is not a folder"
        if why and nearest.is_symlink() and not nearest.exists():  # Its disk may not be mounted.
            why = f"{nearest} is a link to {nearest.readlink()}, which is missing"
        if not why and len(os.fsencode(folder)) > MAX_PATH_BYTES:
            why = f"has {len(os.fsencode(folder)):,} bytes, of up to {MAX_PATH_BYTES:,} that leave room for runs in it"
        if not why and not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
            why = f"no access to {nearest}, or its file system is read-only"
    except OSError as error:  # as for a name that is too long
        why = str(error.strerror)
    if why:
        shown = runs_dir if len(runs_dir) <= MAX_SHOWN_CHARS else f"{runs_dir[:MAX_SHOWN_CHARS]}..."
        raise ConfigError(f"runs_dir={shown}: {why}. Next: give a folder that you can write to")


def check_registered_name(config: RunConfig) -> None:
    name = config.register_model
    if name is not None and not (re.fullmatch(MODEL_NAME_PATTERN, name, re.ASCII) and name == name.strip()):
        raise ConfigError(
            f"register_model={name}: cannot name a model in MLflow. Allowed: 1 to 250 ASCII letters, digits, dots,"
            " dashes, underscores and spaces, the first a letter or a digit"
        )


def check_text(key: str, value: Any) -> None:
    """Raise ConfigError for a control character in a key or a value: options become lines of scripts and tables."""
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            check_text(f"a key of {key}", name)
            check_text(f"{key}.{name}" if key else str(name), item)
    elif isinstance(value, str) and (character := breaks_a_line(value)):
        excerpt = repr(value if len(value) <= MAX_SHOWN_CHARS else f"{value[:MAX_SHOWN_CHARS]}...")
        raise ConfigError(
            f"{key}={excerpt}: contains a control character ({character!r}). Next: give one line of text without any"
        )


def check_numbers(key: str, value: Any) -> None:
    """Raise ConfigError for nan and inf, which Hydra parses as numbers, and for numbers that are too large.

    A run's config is read with integers of more than 63 bits as floats (stored_config.loaded). Products of floats above
    LARGEST, as in estimates of memory, would be infinite.
    """
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            check_numbers(f"{key}.{name}" if key else str(name), inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}={value}: must be a finite number. Next: give one, or put quotes around a word")
    elif isinstance(value, float) and abs(value) > LARGEST:
        raise ConfigError(f"{key}={value}: too large a number. Allowed: up to {LARGEST:g}. Next: give a smaller one")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{key}={value}: too large a number. Allowed: up to {2**63 - 1}")


def check_secrets(options: dict[str, Any]) -> None:
    """Raise ConfigError for a secret in an option: run folders, MLflow and the terminal show options to everybody."""
    texts = [(key, key.rpartition(".")[2], text) for key, text in _texts("", options)]
    assignments = [f"{name}={text}" for _, name, text in texts]
    # One call for all texts, since each call collects the secrets anew.
    for (key, name, text), assignment, clean in zip(texts, assignments, redacted(assignments), strict=True):
        if key == "tracking.uri":
            check_uri(text)
        elif key.startswith("stack.env.") and is_secret_name(name) and len(text) >= MIN_CHARS:
            raise ConfigError(
                f"{key}={REDACTED}: names a secret, which run folders would keep. Next: export {name} in the"
                " environment; the worker inherits it"
            )
        elif clean != assignment:
            raise ConfigError(
                f"{key}={REDACTED}: contains a secret (a password, a token or the value of a secret environment"
                " variable), which run folders would keep. Next: give it in the environment, or in a file that the"
                " program reads"
            )


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts in an option, with their keys."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(f"{key}.{name}" if key else str(name), inner)
    elif isinstance(value, str):
        yield key, value


def check_uri(uri: str, option: str = "tracking.uri") -> None:
    """Raise ConfigError for an address that MLflow cannot use, or one with a password; `option` names it."""
    public_uri = strip_credentials(uri)
    has_secret_in_query = any(is_secret_name(name) for name, _ in parse_qsl(urlsplit(uri).query))
    if URL_PASSWORD.search(uri) or has_secret_in_query or (public_uri != uri and public_uri.startswith("http")):
        raise ConfigError(
            f"{option}={REDACTED}: contains a password, which run folders would keep. Next: give it in"
            " MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the whole address in MLFLOW_TRACKING_URI"
        )
    if urlsplit(uri).scheme.split("+")[0] not in URI_SCHEMES:
        raise ConfigError(
            f"{option}={public_uri}: not a tracking server (MLflow no longer keeps runs in plain folders). Allowed:"
            " sqlite:///FILE, http(s)://HOST:PORT or a database's address"
        )
    try:
        urlsplit(uri).port  # noqa: B018  its property raises
    except ValueError as error:
        raise ConfigError(f"{option}={public_uri}: {error}. Next: give a port from 1 to 65535") from None
    if str(_database(uri)).startswith("~"):  # MLflow would make a folder of that name.
        raise ConfigError(f"{option}={public_uri}: no user here has this home. Next: give the file's path in full")
    if folder := database_folder(uri):
        raise ConfigError(
            f"{option}={public_uri}: {folder} is a folder. Next: give the database's file, as in {public_uri}/mlflow.db"
        )


def database_folder(uri: str) -> Path | None:
    """The folder that an SQLite URI names instead of a file; None otherwise. MLflow would retry for minutes."""
    path = _database(uri)
    return path if path is not None and path.is_dir() else None


def _database(uri: str) -> Path | None:
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return with_home(match[1]) if match else None
