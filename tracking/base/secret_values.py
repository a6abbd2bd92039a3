"""The secrets that this process could give away, by value, and all the ways in which a value may be written."""

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

from tracking.base.secret_looks import is_secret_name, looking_secret

MIN_CHARS = 6
LONG = 16  # characters of a part of a secret address that is a secret by itself
COMMON = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|\d{1,15}")  # words and numbers, which stand everywhere
# A port is no password. Of a password with an @ in it, which should be encoded, both readings count.
URL_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d{1,5}[/?#])([^\s@]+)@")
URL_LAST_PASSWORD = re.compile(r"://[^/\s:@]*:([^\s/]+)@")
ENTITIES = {'"': "quot;", "'": "apos;", "&": "amp;", "<": "lt;", ">": "gt;"}  # HTML's, behind their ampersand
BACKSLASH = r"\\|%(?:25)*5[cC]"
LETTERS = {"\t": "t", "\n": "n", "\r": "r"}  # A backslash before the letter stands for the character.


def known(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The secrets of this process's surroundings, as they are."""
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
        values |= set(_in_variable(name, value))
    # The form in which an Authorization header has them (RFC 7617).
    pairs = {f"{user}:{value}" for value in values} if user else set()
    pairs |= {value for value in values if ":" in value}
    values |= {base64.b64encode(pair.encode("utf-8", "surrogateescape")).decode() for pair in pairs}
    return frozenset(value for value in values if len(value) >= MIN_CHARS and not COMMON.fullmatch(value))


def _in_variable(name: str, value: str) -> Iterator[str]:
    """The secrets in an environment variable: all of it by its name, or what looks like one in it."""
    if "://" in value:
        for passwords in (URL_PASSWORD, URL_LAST_PASSWORD):
            yield from passwords.findall(value)
            yield from map(unquote, passwords.findall(value))
    if is_secret_name(name) and not _is_path(value):  # SSH_AUTH_SOCK is a path and no secret.
        yield from _in_address(value) if re.match(r"[\w+.-]+://", value) else value.splitlines()
    for inner in looking_secret(value):
        yield inner
        yield unquote(inner)
        yield from inner.replace("\\n", "\n").splitlines()  # a key in JSON
        yield from looking_secret(f"?{inner}")  # a signature among other fields of a URL's query


def _in_address(value: str) -> Iterator[str]:
    """The secrets in an address that is one, such as a webhook's: all of it, and what a library quotes of it."""
    try:
        parts = urlsplit(value)
    except ValueError:
        yield value
        return
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if len(target) > 1 or "@" in parts.netloc:
        yield value
    every = (target, *parts.path.split("/"), *(pair.partition("=")[2] for pair in parts.query.split("&")))
    yield from (form for part in every if len(part) >= LONG for form in (part, unquote(part)))
    yield from (parts.username or "", parts.password or "")


@lru_cache(maxsize=8)
def any_of(values: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern of all of these, in any way in which they may be written; None of none."""
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(_written, longest_first))) if values else None


def _written(value: str) -> str:
    """A pattern of a value as it is, and as JSON, Python, YAML, URLs and HTML have it, also one within the other."""
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
    """A pattern of hexadecimal escapes behind each other, the first without its backslash."""
    return f"(?:{BACKSLASH}){{1,16}}".join(f"{part[0]}(?i:{part[1:]})" for part in parts)


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
