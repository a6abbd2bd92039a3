"""Recognises secrets without knowing their values: by names such as *_TOKEN, and by their look in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter

REDACTED = "***"
# Words in names of secrets. Short ones occur within other words (PATH), so they must stand alone.
WORDS = (
    "TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "SIGNATURE", "WEBHOOK",
    "CONNECTION_STRING", "CONNSTR",
)  # fmt: skip
SHORT_WORDS = ("PASS", "PWD", "PAT", "SAS", "SIG", "DSN", "JWT")
PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # AccountKey
NAME = re.compile(
    rf"(^|_)({'|'.join(WORDS + SHORT_WORDS)})S?(_|$)|PASSWORD|PASSWD|SECRET|APIKEY|WEBHOOK", re.IGNORECASE
)

ASSIGNED = (
    r"""\\?["']?\s*(?:=>?|:(?!\s+[a-z]{1,15},?\s+[a-z(]))\s*\\?["']?"""  # a colon may also be followed by a sentence
)
# The assigned value: up to the closing quote if it is quoted.
VALUE = r"""(?:(?<=\\["'])[^"'\\\n]{6,}|(?<=")(?:[^"\\\n]|\\.){6,}|(?<=')(?:[^'\\\n]|\\.){6,}|[^\s,;}"']{6,})"""
UNLIKE_A_WORD = r"""(?!\d+\b)(?=[^\s,;}"'&<>]*\d|[\w.~+/%-]{20})"""  # it has a digit, or is long

LOOKS = re.compile(
    r"""(?P<before>://)(?:[^/\s?\#'"<>]{1,500}|[^/\s@?\#'"<>:]{0,200}:(?!\d{1,5}[/?\#])[^\s@'"<>]{1,500})(?P<after>@)
    |(?P<header>\b(?:Basic|Bearer)\s+)[\w+/.~-]{8,}=*
    |(?P<sent>(?i:\bauthorization\\?["']?\s*[:=]\s*\\?["']?(?:basic|bearer|token|digest|apikey)\s+))[^\s"',]{6,}
    |(?P<cookie>(?i:\b(?:set-)?cookie\\?["']?\s*[:=]\s*\\?["']?)(?=[^\s=]+=))[^\r\n"']{6,}
    |\bgh[pousr]_\w{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}|\bhf_[A-Za-z0-9]{30,}|\bnvapi-[\w-]{20,}
    |\bsk-[\w-]{20,}|\b[rs]k_(?:live|test)_\w{16,}|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{35}|\bdckr_pat_[\w-]{20,}
    |\bapi_org_[A-Za-z0-9]{30,}|\bhv[bs]\.[\w-]{20,}|\bdapi[0-9a-f]{32}\b|\bSG\.[\w-]{16,}\.[\w-]{16,}
    |\bdp\.[a-z]{2,4}\.[\w.-]{20,}|(?<!\d)\d{8,12}:AA[\w-]{30,}|\bkey-[0-9a-f]{32}\b
    |\bnpm_[A-Za-z0-9]{36}|\bpypi-[\w-]{20,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*
    |(?P<hook>\b(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks
        |webhook\.office\.com/webhookb2)/)[\w/@-]{8,}
    |-----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY[A-Z ]*-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY[A-Z ]*-----|\Z)
    |(?P<signed>\bSignature=)[\w%+/=-]{16,}
    |(?P<element><(?i:[\w:.-]{0,60}(?:password|passwd|secret|token|api[_-]?key))>)[^<\n]{4,}
    |(?P<user>(?<![\w-])(?:-u|--user|--proxy-user)(?:["'],\s*["']|[ =]+)["']?[^\s:"'/]{1,100}:)(?!\d+\b)[^\s"'/]{4,}
    |(?P<query>(?:(?<=[?&;])|(?<=u0026)|(?<=%3[Ff])|(?<=%26))(?i:[\w.%-]{0,60}(?:token|secret|signature|password|passwd|apikey|accesskey)
        |(?:[\w.%-]{0,60}[._-])?(?:sig|sas|key|pass|pwd|auth|credential|code|jwt)s?)(?:=|%3[Dd]))[^\s&;\#"'<>\\]{4,}
    |(?P<name>\b[A-Z0-9_]*(?:WORDS)S?ASSIGNED)VALUE
    |(?P<short>\b(?:[A-Z0-9]+_)+(?:SHORT)S?ASSIGNED)VALUE
    |(?P<option>(?i:(?<![\w-])[\w.-]{0,60}(?:password|passwd|passphrase|client[_-]?secret|connection[_-]?string
        |(?:secret|access|account|private|api|auth|signing|encryption)[_-]?key|(?:access|amz|goog)[_-]?signature
        |(?:access|auth|refresh|private|security)[_-]?token)["']?ASSIGNED))VALUE
    |(?P<bare>(?i:(?<![\w.-])(?:[\w.-]{0,60}[._-])?(?:secret|pwd)\\?["']?\s*=\s*\\?["']?))VALUE
    |(?P<token>(?i:(?<![\w.-])(?:[\w.-]{0,60}[._-])?(?:token|secret)ASSIGNED))UNLIKE_A_WORD[^\s,;}"'<>]{6,}
    |(?P<flag>(?i:(?<![\w-])--?(?:[\w-]{0,60}-)?(?:password|passwd|passphrase|secret|token|(?:api|access|account)-?key)
        (?:["'],\s*["']|[ ]+)))UNLIKE_A_WORD[^\s,;}"']{6,}
    """.replace("WORDS", "|".join(WORDS)).replace("SHORT", "|".join(SHORT_WORDS))
    .replace("UNLIKE_A_WORD", UNLIKE_A_WORD).replace("ASSIGNED", ASSIGNED).replace("VALUE", VALUE),
    re.VERBOSE,
)  # fmt: skip

# A text without any of these, in either case, cannot match LOOKS. Looking for them is thirty times as fast.
CLUES = (
    "://", "basic", "bearer", "cookie", "private", "token", "key", "secret", "password", "passwd", "passphrase",
    "credential", "auth", "signature", "webhook", "connection", "connstr", "_pass", "_pwd", "_pat", "_sas", "_sig",
    "_dsn", "_jwt", "pwd", "-u", *(f"{word}{s}{equals}" for word in ("sig", "sas", "pass", "code", "jwt")
    for s in ("", "s") for equals in ("=", "%3d")), "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "hf_", "nvapi-", "sk-", "k_live_", "k_test_", "xox", "aiza", "api_org_", "hvs.", "hvb.", "dapi", "sg.", "dp.",
    ":aa", "npm_", "pypi-", "akia", "asia", "eyj", "hooks.slack.com", "discord",
)  # fmt: skip
SHORT_CHARS = 2_000  # Texts up to this length are searched as a whole.


@cache
def is_secret_name(name: str) -> bool:
    """Whether the value of a variable, option or key with this name is a secret."""
    return NAME.search(PARTS.sub("_", name).replace("-", "_").replace(".", "_")) is not None


def may_be_secret_name(name: str) -> bool:
    """Whether a name contains a secret's word anywhere. This stricter rule is for what is published automatically."""
    return is_secret_name(name) or any(word in name.upper() for word in WORDS)


def hide(text: str) -> str:
    """The text with *** in place of everything that looks like a secret."""
    clues = _clues_in(text)
    if not clues:
        return text
    if len(text) <= SHORT_CHARS or "private" in clues:  # a key's block has any number of lines
        return hide_everywhere(text)
    return "".join(hide_everywhere(part) if suspect else part for suspect, part in _parts(text, clues))


def hide_everywhere(text: str) -> str:
    """`hide` without searching for clues first: half a second per megabyte."""
    return LOOKS.sub(lambda match: f"{_kept(match)}{REDACTED}{match['after'] or ''}", text)


def _clues_in(text: str) -> list[str]:
    folded = _folded(text)
    return [clue for clue in CLUES if clue in folded]


def _folded(text: str) -> str:
    """The text in lower case as re.IGNORECASE compares it, also the Kelvin sign and the Turkish letters i."""
    return text.replace("\u0130", "i").replace("\u0131", "i").casefold()


def _parts(text: str, clues: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Parts of the text: True for lines with a clue and the two non-blank lines after them, False for the rest."""
    marked, left = [], 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        folded = _folded(line)
        left = 3 if any(clue in folded for clue in clues) else left
        marked.append((left > 0, line))
        left -= left > 0 and not line.isspace()
    for suspect, group in groupby(marked, key=itemgetter(0)):
        yield suspect, "".join(line for _, line in group)


def looking_secret(text: str) -> Iterator[str]:
    """The parts of a text that look like secrets."""
    for match in LOOKS.finditer(text):
        yield match[0][len(_kept(match)) : len(match[0]) - len(match["after"] or "")]


def _kept(match: re.Match[str]) -> str:
    """The matched text before the secret, which is not part of it."""
    return next((text for group, text in match.groupdict().items() if text and group != "after"), "")
