"""Which servers get the user's credentials: only those that this user names.

A run's folder also names a server, but may come from a stranger. So a server that only a folder names gets requests
without password, token, client certificate, signature or cookie. The same holds for other hosts over plain HTTP, where
anybody on the network could read them, and for addresses in an answer, such as an artifact store. Redirections to other
servers are not followed.
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
# The headers without credentials that MLflow's client sends; its plugins may add others.
HARMLESS_HEADERS = {"user-agent", "content-type", "accept", "accept-encoding", "range", "x-mlflow-workspace"}

_allowed_uris: set[str] = set()  # addresses in the options of this process's command


class Redirected(OSError):
    """A server redirects to another server."""


def allow_server(uri: str | None) -> None:
    """Note that an option names this server, so that it may get the user's credentials."""
    if uri:
        _allowed_uris.add(uri)


def is_named_by_user(uri: str) -> bool:
    """Whether the user names this server, in an option or in the environment."""
    environment_uri = os.environ.get("MLFLOW_TRACKING_URI")
    return server_of(uri) in {server_of(named_uri) for named_uri in (*_allowed_uris, environment_uri) if named_uri}


def server_of(uri: str) -> str:
    """The identity of an address's server: protocol, host and port; for other protocols than HTTP, all but credentials.

    The address is parsed as for the connection, since other parsers find another host in `https://a.org/@b.org`.
    """
    from urllib3.util import parse_url

    with suppress(ValueError):
        parts = parse_url(uri.lstrip())
        if parts.scheme in PORTS:
            return f"{parts.scheme}://{parts.host}:{parts.port or PORTS[parts.scheme]}"
    return strip_credentials(uri)


def why_withheld(uri: str) -> str | None:
    """Why a server gets no credentials, and what to type; None if it may have them."""
    if not is_named_by_user(uri):
        return (
            "yours were not sent, since you have not named this server, only the run's folder has. If it is yours, set"
            f" MLFLOW_TRACKING_URI={_without_user(uri)}, or give {TRACKING} sync --to {_without_user(uri)} FOLDER"
        )
    server = server_of(uri)
    if server.startswith("http:") and not is_this_machine(uri):
        return (
            "yours were not sent, since others on the network could read them in plain HTTP. Give an https:// address,"
            f" or a tunnel: ssh -L 5000:{server.partition('//')[2]} HOST, and http://127.0.0.1:5000"
        )
    return None


def is_this_machine(uri: str) -> bool:
    """Whether a request to this address stays on this machine."""
    from requests.utils import get_environ_proxies
    from urllib3.util import parse_url

    host = (parse_url(uri.lstrip()).host or "").strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return loopback and not get_environ_proxies(_without_user(uri)).keys() & {"http", "all"}


def _without_user(uri: str) -> str:
    """The address without user and password."""
    from urllib3.util import parse_url

    try:
        return str(parse_url(uri.lstrip())._replace(auth=None).url)
    except ValueError:  # no request can be sent to such an address
        return strip_credentials(uri)


def guard_request(url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """URL and options of a request of the library `requests`, without credentials if they are withheld."""
    options = {**options, "hooks": {"response": _refuse_redirection}}
    if why_withheld(url) is None:
        return url, options
    headers = {name: text for name, text in (options.get("headers") or {}).items() if name.lower() in HARMLESS_HEADERS}
    return _without_user(url), {**options, "headers": headers, "auth": _add_no_credentials, "cert": None}


def _add_no_credentials(request: PreparedRequest) -> PreparedRequest:
    """An authentication that adds nothing, so that requests does not read .netrc, which may name any host."""
    return request


def _refuse_redirection(response: Response, *_: Any, **__: Any) -> None:
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["location"])
    if server_of(target) != server_of(response.url):
        response.close()  # raising would leave it open
        raise Redirected(
            f"{server_of(response.url)} redirects to another server, {server_of(target)}, which is not followed. Next:"
            " give"
            " that address if it is your server"
        )
