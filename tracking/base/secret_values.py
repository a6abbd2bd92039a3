"""The values of the secrets known to this process, and patterns of all the ways to write a value."""

from __future__ import annotations

import base64
import configparser
import netrc
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tracking.base.paths import with_home
from tracking.base.secret_looks import is_secret_name, looking_secret

MIN_CHARS = 6
LONG = 16  # a part of a secret address that has this many characters or more is itself a secret
COMMON = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|\d{1,15}")  # single words and numbers, too common to redact
# A port is not a password. If a password has an unencoded @, both readings count.
URL_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d{1,5}[/?#])([^\s@]+)@")
URL_LAST_PASSWORD = re.compile(r"://[^/\s:@]*:([^\s/]+)@")
ENTITIES = {'"': "quot;", "'": "apos;", "&": "amp;", "<": "lt;", ">": "gt;"}  # HTML entities after their ampersand
BACKSLASH = r"\\|%(?:25)*5[cC]"
LETTERS = {"\t": "t", "\n": "n", "\r": "r"}  # letters of backslash escapes


def known(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The values of the secrets in the environment and in the credentials files of MLflow, AWS and netrc."""
    home = with_home(environ.get("HOME", "~"))
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
        values |= set(_in_variable(name, value))
    # As in an Authorization header (RFC 7617).
    pairs = {f"{user}:{value}" for value in values} if user else set()
    pairs |= {value for value in values if ":" in value}
    values |= {base64.b64encode(pair.encode("utf-8", "surrogateescape")).decode() for pair in pairs}
    return frozenset(value for value in values if len(value) >= MIN_CHARS and not COMMON.fullmatch(value))


def _in_variable(name: str, value: str) -> Iterator[str]:
    """The secrets in an environment variable: the whole value, by its name, or parts that look like secrets."""
    if "://" in value:
        for passwords in (URL_PASSWORD, URL_LAST_PASSWORD):
            yield from passwords.findall(value)
            yield from map(unquote, passwords.findall(value))
    if is_secret_name(name) and not _is_path(value):  # SSH_AUTH_SOCK is a path, not a secret.
        yield from _in_address(value) if re.match(r"[\w+.-]+://", value) else value.splitlines()
    for inner in looking_secret(value):
        yield inner
        yield unquote(inner)
        yield from inner.replace("\\n", "\n").splitlines()  # a key in JSON
        yield from looking_secret(f"?{inner}")  # a signature among other fields of a URL's query


def _in_address(value: str) -> Iterator[str]:
    """The secrets in a secret address, such as a webhook: the whole, and the parts that a library quotes."""
    try:
        parts = urlsplit(value)
    except ValueError:
        yield value
        return
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if len(target) > 1 or "@" in parts.netloc:
        yield value
    pieces = (target, *parts.path.split("/"), *(pair.partition("=")[2] for pair in parts.query.split("&")))
    yield from (form for piece in pieces if len(piece) >= LONG for form in (piece, unquote(piece)))
    yield from (parts.username or "", parts.password or "")


@lru_cache(maxsize=8)
def any_of(values: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern that matches these values in any notation; None without values."""
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(_written, longest_first))) if values else None


def _written(value: str) -> str:
    """A pattern of a value, plain or in the notations of JSON, Python, YAML, URLs and HTML, also nested."""
    return "".join(map(_character, re.sub(r"\\+", r"\\", value)))


def _character(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in "_"):
        return character
    if character == "\\":
        return rf"(?:{BACKSLASH}){{1,16}}"
    number = ord(character)
    as_bytes = character.encode("utf-8", "surrogateescape")
    utf16 = character.encode("utf-16-be", "surrogatepass")
    units = [utf16[place : place + 2].hex() for place in range(0, len(utf16), 2)]
    spelled = [re.escape(character), *LETTERS.get(character, "")]
    spelled += [_any_case(f"u{unit}" for unit in units), _any_case([f"U{number:08x}"])]
    spelled += [_any_case(f"x{byte:02x}" for byte in as_bytes)]
    spelled += [_any_case([f"x{number:02x}"])] if number < 256 else []
    names = [rf"\#{number};", rf"\#(?i:x0*{number:x});", *([ENTITIES[character]] if character in ENTITIES else [])]
    percent = "".join(rf"%(?:25)*(?i:{byte:02x})" for byte in as_bytes)
    plus = "|[+]" if character == " " else ""
    forms = rf"{'|'.join(spelled)}|{percent}|&(?:amp;)*(?:{'|'.join(names)}){plus}"
    return rf"(?:{BACKSLASH}){{0,16}}(?:{forms})"


def _any_case(parts: Iterable[str]) -> str:
    """A pattern of consecutive hexadecimal escapes, the first without its backslash."""
    return f"(?:{BACKSLASH}){{1,16}}".join(f"{part[0]}(?i:{part[1:]})" for part in parts)


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~", ".")) and with_home(value).exists()
    except (OSError, ValueError):
        return False


def _changed_ns(path: Path) -> int:
    """The modification time of a file; 0 if it is missing or unreadable."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _stored(path: Path) -> Iterator[str]:
    """The secrets in a credentials file, without user names. MLflow's is parsed as in mlflow.utils.credentials."""
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
