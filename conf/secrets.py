"""What is a secret, and text without any: nothing that is written, printed or uploaded may hold one.

A secret is known by its value, where the environment has it, or the credentials files of MLflow, AWS and netrc; or by
its look: the user and password of a URL, tokens of well-known forms, and what is assigned to a name that speaks of a
secret. What is known by neither, such as somebody else's password in the middle of a sentence, is not recognised; nor
is one that is a single word or number. All of timetrial asks here, so that there is one rule.
"""

from __future__ import annotations

import base64
import configparser
import netrc
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

REDACTED = "***"
MIN_CHARS = 6
COMMON = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|\d{1,15}")  # words and numbers, which stand everywhere
# The words by which a name speaks of a secret. Shorter ones are parts of others (PATH), so they have to stand alone.
WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH")
SHORT_WORDS = ("PASS", "PWD", "PAT")
NAME = re.compile(rf"(^|_)({'|'.join(WORDS + SHORT_WORDS)})S?(_|$)|PASSWORD|PASSWD|SECRET|APIKEY", re.IGNORECASE)
URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^\s@]+)@")
QUERY_CREDENTIAL = re.compile(r"user|pass|token", re.IGNORECASE)  # a URI's query may hold a user, too

LOOKS = re.compile(
    r"""(?P<before>://)[^/\s@?\#'"<>]+(?P<after>@)                      # the user and password of a URL
    |(?P<header>\b(?:Basic|Bearer)\s+)[\w+/.~-]{8,}=*                   # of an Authorization header
    |\bgh[pousr]_\w{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}        # GitHub, GitLab
    |\bhf_[A-Za-z0-9]{30,}|\bsk-[\w-]{20,}|\bxox[a-z]-[\w-]{10,}        # Hugging Face, OpenAI, Slack
    |\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*    # AWS, JSON web tokens
    |-----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    |(?P<name>\b[A-Z0-9_]*(?:WORDS)S?["']?\s*[=:]\s*["']?)[^\s,;}"']{6,}
    |(?P<option>(?i:\b(?:\w+_)?(?:password|passwd|(?:secret|access)_key|api_?key|(?:access|auth)_token)["']?\s*[=:]\s*["']?))
        [^\s,;}"']{6,}
    """.replace("WORDS", "|".join(WORDS)),
    re.VERBOSE,
)  # fmt: skip


@cache
def is_secret_name(name: str) -> bool:
    """Whether what has this name, as an environment variable or an option, is a secret."""
    return NAME.search(name) is not None


def may_be_secret_name(name: str) -> bool:
    """Whether a name has such a word anywhere in it: what is published unasked goes by this rule."""
    return is_secret_name(name) or any(word in name.upper() for word in WORDS)


def known(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The secrets of this process's surroundings, by value."""
    home = Path(environ.get("HOME", "~")).expanduser()
    files = (
        home / ".mlflow/credentials",
        Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials"),
        Path(environ.get("NETRC") or home / ".netrc"),  # requests reads it by itself
    )
    return _known(frozenset(environ.items()), tuple((path, _changed_ns(path)) for path in files))


@lru_cache(maxsize=8)
def _known(environ: frozenset[tuple[str, str]], files: tuple[tuple[Path, int], ...]) -> frozenset[str]:
    values = {value for path, changed_ns in files if changed_ns for value in _stored(path)}
    user = dict(environ).get("MLFLOW_TRACKING_USERNAME", "")
    for name, value in environ:
        if "://" in value:
            values |= {form for password in URL_PASSWORD.findall(value) for form in (password, unquote(password))}
        elif is_secret_name(name) and not _is_path(value):  # such as SSH_AUTH_SOCK
            values |= set(value.splitlines())
    if user:  # the form in which an Authorization header has them (RFC 7617)
        values |= {base64.b64encode(f"{user}:{password}".encode()).decode() for password in values}
    return frozenset(value for value in values if len(value) >= MIN_CHARS and not COMMON.fullmatch(value))


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text with *** in place of every secret."""
    values = _any_of(known(environ))
    text = values.sub(REDACTED, text) if values else text
    return LOOKS.sub(_hide, text)


def redacted(value: Any) -> Any:
    """A plain value, of dicts, lists and strings, with all of its strings redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redacted(inner) for key, inner in value.items()}
    return [redacted(inner) for inner in value] if isinstance(value, list | tuple) else value


def is_credential(key: str) -> bool:
    """Whether a key in the query of a URI gives a user or a secret."""
    return is_secret_name(key) or QUERY_CREDENTIAL.search(key) is not None


def strip_credentials(uri: str) -> str:
    """The URI without user, password and token: fit to be written and printed."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https") and "@" in uri:  # also where a / of the password is not encoded
        uri = f"{parts.scheme}://{uri.rpartition('@')[2]}"
        parts = urlsplit(uri)
    pairs = parse_qsl(parts.query)
    query = [(key, value) for key, value in pairs if not is_credential(key)]
    if "@" in parts.netloc or len(query) < len(pairs):
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query))
        return urlunsplit(parts)
    return uri


def guard_tracebacks() -> None:
    """Print no secret in the tracebacks of this process, in any thread."""

    def show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = show
    threading.excepthook = lambda caught: show(caught.exc_type, caught.exc_value, caught.exc_traceback)


def _hide(match: re.Match[str]) -> str:
    groups = match.groupdict()
    kept = groups["before"] or groups["header"] or groups["name"] or groups["option"] or ""
    return f"{kept}{REDACTED}{groups['after'] or ''}"


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~", ".")) and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _changed_ns(path: Path) -> int:
    """When a file was written; 0 where there is none, or none that this user can read."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _stored(path: Path) -> Iterator[str]:
    """What a credentials file holds, except for the users' names; of MLflow's as mlflow.utils.credentials reads it."""
    if "netrc" in path.name:
        with suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            yield from (password for _, _, password in netrc.netrc(path).hosts.values() if password)
        return
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path)
    except (OSError, configparser.Error, UnicodeDecodeError):
        return
    for section in parser.sections():
        yield from (value for name, value in parser[section].items() if is_secret_name(name))


@lru_cache(maxsize=8)
def _any_of(values: frozenset[str]) -> re.Pattern[str] | None:
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if values else None
