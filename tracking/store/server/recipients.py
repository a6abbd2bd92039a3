"""Who may be sent the user's credentials: the servers that this user names, and nobody else.

A run's folder names a server too, and may be a stranger's. Its server gets requests without password, token, client
certificate, signature or cookie. So does every server of another host that is asked over plain HTTP, where all on the
way could read them, and whatever else an answer names, such as a place for artifacts. A redirection to another server
is not followed.
"""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from tracking.base.installation import TRACKING
from tracking.base.secrets import strip_credentials

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

PORTS = {"http": 80, "https": 443}
# What MLflow's client sends to everybody; its plugins may add others.
HARMLESS_HEADERS = {"user-agent", "content-type", "accept", "accept-encoding", "range", "x-mlflow-workspace"}

_named: set[str] = set()  # addresses that options of this process's command name


class Redirected(OSError):
    """A server wants to send us to another one."""


def name_server(uri: str | None) -> None:
    """Take this for a server of the user's: an option names it."""
    if uri:
        _named.add(uri)


def is_named(uri: str) -> bool:
    """Whether the user names this server, in an option or in the environment."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    return server_of(uri) in {server_of(each) for each in (*_named, given) if each}


def server_of(uri: str) -> str:
    """What makes two addresses the same server: protocol, host and port; of others than HTTP all but the credentials.

    The address is taken apart as it is for the connection: other ways find other hosts in `https://a.org/@b.org`.
    """
    from urllib3.util import parse_url

    with suppress(ValueError):
        parts = parse_url(uri.lstrip())
        if parts.scheme in PORTS:
            return f"{parts.scheme}://{parts.host}:{parts.port or PORTS[parts.scheme]}"
    return strip_credentials(uri)


def withheld(uri: str) -> str | None:
    """Why a server is sent no credentials, and what to type; None where it may have them."""
    if not is_named(uri):
        return (
            "yours were not sent, since you have not named this server, only the run's folder does. If it is yours, set"
            f" MLFLOW_TRACKING_URI={_without_user(uri)}, or give {TRACKING} sync --to {_without_user(uri)} FOLDER"
        )
    server = server_of(uri)
    if server.startswith("http:") and not is_this_machine(uri):
        return (
            "yours were not sent, since anybody on the way could read them in plain HTTP. Give an address with https://,"
            f" or a tunnel's: ssh -L 5000:{server.partition('//')[2]} HOST, and http://127.0.0.1:5000"
        )
    return None


def is_this_machine(uri: str) -> bool:
    """Whether a request of this address stays on this machine."""
    from requests.utils import get_environ_proxies
    from urllib3.util import parse_url

    host = (parse_url(uri.lstrip()).host or "").strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return loopback and not get_environ_proxies(_without_user(uri)).keys() & {"http", "all"}


def _without_user(uri: str) -> str:
    """An address without user and password."""
    from urllib3.util import parse_url

    try:
        return str(parse_url(uri.lstrip())._replace(auth=None).url)
    except ValueError:  # no request can be sent to such an address
        return strip_credentials(uri)


def guarded(url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """URL and options of a request of the library `requests`, fit to be sent to this server."""
    options = {**options, "hooks": {"response": _refuse_redirection}}
    if withheld(url) is None:
        return url, options
    headers = {name: text for name, text in (options.get("headers") or {}).items() if name.lower() in HARMLESS_HEADERS}
    return _without_user(url), {**options, "headers": headers, "auth": _as_nobody, "cert": None}


def _as_nobody(request: PreparedRequest) -> PreparedRequest:
    """Instead of what requests would find in .netrc, which may speak of any host."""
    return request


def _refuse_redirection(response: Response, *_: Any, **__: Any) -> None:
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["location"])
    if server_of(target) != server_of(response.url):
        response.close()  # nobody gets it who would
        raise Redirected(
            f"{server_of(response.url)} sends us on to another server, {server_of(target)}, which is not followed: give"
            " that one's address if it is yours"
        )
