"""Removes secrets from everything that is written, printed or uploaded. All of timetrial uses this one rule.

Two ways to recognise a secret:

* By its value, if the environment or the credentials files of MLflow, AWS and netrc have it. The notations of JSON,
  Python, YAML, URLs and HTML count too.
* By its look: user and password of a URL, tokens of well-known forms, values assigned to names such as *_TOKEN.

Not recognised: another person's password within a sentence, and a secret that is a single word or number.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tracking.base.secret_looks import REDACTED, hide, is_secret_name, may_be_secret_name
from tracking.base.secret_values import MIN_CHARS, URL_PASSWORD, any_of, known

__all__ = [
    "MIN_CHARS",
    "REDACTED",
    "URL_PASSWORD",
    "guard_tracebacks",
    "is_credential",
    "is_secret_name",
    "known",
    "may_be_secret_name",
    "redact",
    "redacted",
    "strip_credentials",
]

QUERY_CREDENTIAL = re.compile(r"user|pass|token", re.IGNORECASE)  # a URI's query may also have a user


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text with *** in place of every secret."""
    return _without(text, any_of(known(environ)))


def redacted(value: Any) -> Any:
    """A plain value (dicts, lists, strings, numbers) with all its strings redacted."""
    if _is_of_numbers(value):  # Searching for secrets would be the largest cost of a window of steps.
        return value
    return _redacted(value, any_of(known()))


def _is_of_numbers(value: Any) -> bool:
    inner = value if isinstance(value, list | tuple) else [value]
    return all(number is None or isinstance(number, int | float) for number in inner)


def _redacted(value: Any, values: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        return _without(value, values)
    if isinstance(value, dict):
        return {_redacted(key, values): _redacted(inner, values) for key, inner in value.items()}
    return [_redacted(inner, values) for inner in value] if isinstance(value, list | tuple) else value


def _without(text: str, values: re.Pattern[str] | None) -> str:
    return hide(values.sub(REDACTED, text) if values else text)


def is_credential(key: str) -> bool:
    """Whether a key in a URI's query is that of a user or a secret."""
    return is_secret_name(key) or QUERY_CREDENTIAL.search(key) is not None


def strip_credentials(uri: str) -> str:
    """The URI without user, password and token, safe to write and print."""
    parts = urlsplit(uri)
    # Also if a / in the password is not encoded.
    if parts.scheme in ("http", "https") and "@" in uri and ("@" in parts.netloc or ":" in parts.netloc):
        uri = f"{parts.scheme}://{uri.rpartition('@')[2]}"
        parts = urlsplit(uri)
    pairs = parse_qsl(parts.query)
    query = [(key, value) for key, value in pairs if not is_credential(key)]
    if "@" in parts.netloc or len(query) < len(pairs):
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query))
        return urlunsplit(parts)
    return uri


def guard_tracebacks() -> None:
    """Redact the tracebacks of this process, in all threads."""

    def show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = show
    threading.excepthook = lambda caught: show(caught.exc_type, caught.exc_value, caught.exc_traceback)
