"""Access to a team's server is checked before the training: passwords, permissions, certificates."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.commands import HANGS_SEC, TINY, Launched, launch
from tests.support.mlflow_server import answering
from tests.support.team_server import TeamServer
from tracking.store import server
from tracking.store.server.server_errors import TrackingRefused, TrackingUnavailable

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("mlflow_environment")]


@pytest.fixture(scope="module")
def passwords(team_server: TeamServer) -> Iterator[dict[str, str]]:
    """Erin manages the experiment `erins`, Frank is in the team that edits it, Grace has an account."""
    names = ("erin", "frank", "grace")
    accounts = team_server.accounts
    given = {name: accounts.add_user(name) for name in names}
    accounts.grant("MANAGE", "erins", user="erin")
    accounts.add_team("editors")
    accounts.join("editors", "frank")
    accounts.grant("EDIT", "erins", team="editors")
    yield given
    accounts.remove_team("editors")
    for name in names:
        accounts.remove_user(name)


@pytest.fixture
def check(team_server: TeamServer, passwords: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def ask(user: str, experiment: str = "erins", password: str | None = None) -> str:
        """The message of the check; empty if everything works."""
        for key, value in team_server.credentials(user, password or passwords.get(user)).items():
            monkeypatch.setenv(key, value)
        try:
            server.check_server(team_server.uri, experiment)
        except TrackingRefused as error:
            return str(error)
        return ""

    return ask


def test_those_who_may_write_pass(check: Callable[..., str]) -> None:
    assert [check(user) for user in ("erin", "frank", "admin")] == ["", "", ""]
    assert check("grace", "an experiment that is not there yet") == ""


def test_a_missing_permission_is_told_with_those_who_can_grant_it(
    check: Callable[..., str], team_server: TeamServer
) -> None:
    said = check("grace")
    assert "grace has READ on the experiment 'erins', and a run needs EDIT" in said
    assert "admin (administrator) can grant it, and so can anybody with MANAGE on it" in said
    # With a permission on something, too, nobody is told who else has which.
    team_server.accounts.grant("READ", "erins", user="grace")
    assert check("grace") == said
    assert not re.search("erin |frank|editors", said)
    team_server.accounts.grant("DENY", "erins", user="grace")
    said = check("grace")
    assert "grace has no permission on the experiment 'erins'" in said
    assert "admin (administrator) can grant it" in said
    team_server.accounts.revoke("erins", user="grace")


def test_a_run_without_the_permission_is_refused_before_it_trains(
    tmp_path: Path, team_server: TeamServer, passwords: dict[str, str]
) -> None:
    def as_grace(*settings: str, password: str) -> Launched:
        return launch(tmp_path, *TINY, *settings, **team_server.credentials("grace", password))

    refused = as_grace("tracking.experiment=erins", password=passwords["grace"])
    assert (refused.code, refused.folders) == (2, [])
    assert "grace has READ on the experiment 'erins', and a run needs EDIT" in refused.output
    refused = as_grace(password="not the password")
    assert (refused.code, refused.folders) == (2, [])
    assert "the password of grace is wrong, or this user does not exist" in refused.output
    assert "tracking.offline=true" in refused.output


def test_a_wrong_password_is_told_from_none(check: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the password of erin is wrong" in check("erin", password="x")
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    with pytest.raises(TrackingRefused, match="it asks for a user and a password"):
        server.check_server(server.default_uri())


def make_certificate(folder: Path, name: str, ends: timedelta) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key; `ends` is from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=2)).not_valid_after(now + ends)
    signed = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False).sign(key, hashes.SHA256())
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(signed.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[str]:
    """Shakes hands, and hangs up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            connection.settimeout(HANGS_SEC)
            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(HANGS_SEC)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}"
        thread.join()


def test_a_certificate_that_cannot_be_trusted_is_explained(
    team_server: TeamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "MLFLOW_TRACKING_SERVER_CERT_PATH"
    text = tmp_path / "text.pem"
    text.write_text("no certificate\n")
    other, other_key = make_certificate(tmp_path, "other.example.org", timedelta(days=1))
    for value, words in {
        "/nowhere.pem": f"{path}=/nowhere.pem names a file that does not exist",
        str(text): f"{path}={text} names a file that holds no certificate",
        str(other): f"set {path} to the path of the certificate, or of its authority's",
    }.items():
        monkeypatch.setenv(path, value)
        with pytest.raises(TrackingRefused) as refused:
            server.check_server(team_server.uri)
        assert words in str(refused.value)
        assert "tracking.offline=true" in str(refused.value)
    monkeypatch.setenv(path, str(other))
    with tls_server(other, other_key) as uri, pytest.raises(TrackingRefused, match="made out to other names"):
        server.check_server(uri)
    expired, expired_key = make_certificate(tmp_path, "localhost", timedelta(days=-1))
    monkeypatch.setenv(path, str(expired))
    with tls_server(expired, expired_key) as uri, pytest.raises(TrackingRefused, match="has expired"):
        server.check_server(uri)


def test_tls_and_none_are_told_apart(team_server: TeamServer) -> None:
    with pytest.raises(TrackingRefused, match="it speaks TLS: give https:// in place of http://"):
        server.check_server(team_server.uri.replace("https", "http"))
    with answering(200) as (uri, _), pytest.raises(TrackingRefused, match="http:// in place of https://"):
        server.check_server(uri.replace("http", "https"))
    with pytest.raises(TrackingUnavailable):
        server.check_server("https://localhost:1")


def test_mlflow_s_own_client_explains_tls_too(team_server: TeamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    with pytest.raises(TrackingRefused, match="not trusted here"), server.as_tracking_errors(team_server.uri, ""):
        MlflowClient(team_server.uri).search_experiments()
