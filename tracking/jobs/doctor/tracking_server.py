"""Checks that the tracking server answers, has a known version, and accepts a run."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from tracking.base import secrets
from tracking.jobs.doctor.finding import Finding
from tracking.record import Journal, Result, RunInfo, documents, run_folder
from tracking.store import server
from tracking.store.server import TrackingRefused, TrackingUnavailable, connection

OLDEST_SERVER, NEWEST_TESTED = (3, 5), (3, 17)  # MLflow's versions; the first as in pyproject.toml


def tracking_server(uri: str, experiment: str) -> Iterator[Finding]:
    """Findings on the tracking server: answer, version and an upload."""
    shown = secrets.strip_credentials(uri)
    if uri.startswith("sqlite:") and not Path(uri.partition("///")[2]).exists():
        yield Finding("server", f"{shown} does not exist yet; the first run makes it")
        return
    try:
        server.check_server(uri, experiment)
    except (TrackingRefused, TrackingUnavailable) as error:
        yield Finding("server", str(error), ok=False)
        yield Finding("upload", "not tried, since the server does not answer", ok=False)
        return
    yield (
        version(uri)
        if connection.is_http(uri)
        else Finding("server", f"{shown} (a file or database, without a server)")
    )
    yield upload(uri)


def version(uri: str) -> Finding:
    """The finding on a server's version."""
    shown = secrets.strip_credentials(uri)
    try:
        text = connection.request(uri, "GET", "version").text.strip()
    except (connection.Misconfigured, OSError) as error:
        return Finding("server", f"{shown}: {error}", ok=False)
    if not (match := re.fullmatch(r"(\d+)\.(\d+)(\.\S+)?", text)):
        return Finding(
            "server", f"{shown} does not answer with a version. Next: give the address of an MLflow server", ok=False
        )
    release = int(match[1]), int(match[2])
    user = connection.user(uri)
    words = f"{shown} answers{f' {user}' if user else ''}, MLflow {text}"
    if release < OLDEST_SERVER:
        return Finding(
            "server", f"{words}: too old. Next: upgrade it to {version_text(OLDEST_SERVER)} or newer", ok=False
        )
    newer = f" (newer than {version_text(NEWEST_TESTED)}, the newest tested version)" if release > NEWEST_TESTED else ""
    return Finding("server", words + newer)


def upload(uri: str) -> Finding:
    """Send a run with one metric and one file, read both back, and delete the run with its experiment."""
    from tracking.store.mirror import Mirror
    from tracking.store.server import open_client

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # A new experiment: only its maker or a user with MANAGE can delete it, and another doctor may run now.
    experiment = "-".join(filter(None, ("doctor", connection.user(uri), token_hex(4))))
    with tempfile.TemporaryDirectory() as scratch:
        folder = run_folder.create(Path(scratch), "doctor")
        info = RunInfo("doctor", experiment, secrets.strip_credentials(uri))
        documents.write_json(folder / run_folder.RUN, info)
        documents.write_text(folder / "doctor.txt", info.uid)
        journal = Journal(folder / run_folder.JOURNAL)
        journal.metrics({"doctor": 1.0})
        journal.close()
        documents.write_json(folder / run_folder.RESULT, Result("finished"))
        mirror = Mirror(folder, uri)
        client = open_client(uri)
        try:
            mirror.finish()
            assert mirror.run_id
            with server.as_tracking_errors(uri, ""):
                back = Path(client.download_artifacts(mirror.run_id, "doctor.txt", scratch)).read_text()
                history = [metric.value for metric in client.get_metric_history(mirror.run_id, "doctor")]
        except (TrackingRefused, TrackingUnavailable, ValueError) as error:
            return Finding("upload", str(error), ok=False)
        finally:
            if mirror.experiment_id:
                with suppress(Exception):  # An earlier failure matters more, and is reported.
                    client.delete_experiment(mirror.experiment_id)  # This deletes its run, too.
    if (back, history) != (info.uid, [1.0]):
        return Finding(
            "upload",
            f"read back {back!r} and {history}, which is not what was sent. Next: check the server's artifact store",
            ok=False,
        )
    return Finding(
        "upload", f"a metric and an artifact went into experiment {experiment!r} and came back; it is deleted now"
    )


def version_text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
