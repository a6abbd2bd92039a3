"""The mirror of a run's folder to MLflow: ships what is new in the journal, resumes where it stopped, never twice.

The folder alone suffices: run.json says which run it is, mirror.json how far MLflow has it. MLflow is imported with
the first request, because the import takes seconds. `tracking.sync` runs mirrors: one beside a training, or many.
"""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tracking import journal, run_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOCK = ".mirror.lock"
UID_TAG = "timetrial.uid"
LOCAL_UI = "http://127.0.0.1:5000"  # where `ui_command` serves a database
CHECK_TIMEOUT_SEC = 5
STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}

# MLflow's limits (mlflow/utils/validation.py); the last is below its 1 MB, since our count of bytes is an estimate.
MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_ENTITIES, MAX_BYTES = 1000, 100, 100, 1000, 900_000
MAX_KEY_CHARS, MAX_PARAM_CHARS, MAX_TAG_CHARS = 250, 6000, 8000
KEY = re.compile(r"[/\w.\- ]*")

# One request, one answer: the mirror's caller decides when to try again. MLflow's own defaults (7 retries, doubling
# from 2 s, 120 s a request) block a refused call for 246 s. What the user has set wins.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # its errors reach the user once, through ours
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # a training machine calls no third party
    "GIT_PYTHON_REFRESH": "quiet",
}


class TrackingUnavailable(Exception):
    """The tracking server cannot be reached, or not now: try again later, nothing is lost."""


class TrackingRefused(Exception):
    """The tracking server answers and refuses: trying again does not help until somebody changes something."""


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, else the database mlflow.db in the current folder. May hold credentials."""
    return absolute_uri(os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db")


def absolute_uri(uri: str) -> str:
    """The URI with a relative SQLite path made absolute, so that it means the same from every folder."""
    path = _sqlite_path(uri)
    return uri if path is None else uri.replace(f"///{path}", f"///{path.expanduser().absolute()}", 1)


def strip_credentials(uri: str) -> str:
    """The URI without user, password and token: fit to be written and printed."""
    parts = urlsplit(uri)
    query = [(key, value) for key, value in parse_qsl(parts.query) if not re.search("user|pass|token|secret", key)]
    if "@" in parts.netloc or len(query) < len(parse_qsl(parts.query)):
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query))
        return urlunsplit(parts)
    return uri


def run_link(uri: str, experiment_id: str, run_id: str) -> str:
    """The page of a run in MLflow's UI; for a database, where `ui_command` serves it."""
    return f"{_ui(uri)}/#/experiments/{experiment_id}/runs/{run_id}"


def compare_link(uri: str, experiment_id: str, run_ids: list[str]) -> str:
    """The page that compares runs (getCompareRunPageRoute in MLflow's routes: two JSON lists as the query)."""
    runs, experiments = (
        quote(json.dumps(ids, separators=(",", ":")), safe="") for ids in (list(run_ids), [experiment_id])
    )
    return f"{_ui(uri)}/#/compare-runs?runs={runs}&experiments={experiments}"


def ui_command(uri: str) -> str | None:
    """The command that serves a database's runs at the links above; None where a server does already."""
    if urlsplit(uri).scheme in ("http", "https"):
        return None
    return f"mlflow ui --backend-store-uri {shlex.quote(strip_credentials(uri))} --port {LOCAL_UI.rpartition(':')[2]}"


def _ui(uri: str) -> str:
    return strip_credentials(uri).rstrip("/") if urlsplit(uri).scheme in ("http", "https") else LOCAL_UI


def _sqlite_path(uri: str) -> Path | None:
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(\?.*)?", uri)
    return Path(match[1]) if match and match[1] != ":memory:" else None


def check_server(uri: str) -> None:
    """Ask an HTTP tracking server, once and within seconds, whether it will take a run; other URIs are not checked.

    Raises TrackingRefused when it refuses our credentials, TrackingUnavailable when it does not answer as MLflow does.
    """
    plugin = os.environ.get("MLFLOW_TRACKING_AUTH") or os.environ.get("MLFLOW_TRACKING_AWS_SIGV4")
    if urlsplit(uri).scheme not in ("http", "https") or plugin:  # a plugin's signature only MLflow itself can make
        return
    import requests

    url = uri.rstrip("/") + "/api/2.0/mlflow/experiments/search"
    insecure = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1")
    try:
        response = requests.post(
            url,
            json={"max_results": 1},
            headers=_authorization(),
            timeout=CHECK_TIMEOUT_SEC,
            verify=not insecure and (os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or True),
            cert=os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"),
        )
    except requests.RequestException as error:
        raise TrackingUnavailable(_message(uri, error)) from None
    if response.status_code in (401, 403):
        raise TrackingRefused(_refusal(uri, f"HTTP {response.status_code} {response.text[:200].strip()}"))
    if response.status_code != 200:
        raise TrackingUnavailable(_message(uri, f"HTTP {response.status_code} {response.text[:200].strip()}"))


def _authorization() -> dict[str, str]:
    """The header that MLflow would send (mlflow.utils.credentials, mlflow.utils.rest_utils.http_request)."""
    import base64
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    parser.read(Path("~/.mlflow/credentials").expanduser())
    stored: Mapping[str, str] = parser["mlflow"] if parser.has_section("mlflow") else {}
    user, password = (
        os.environ.get(name) or stored.get(name.lower())
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    )
    if user and password:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _message(uri: str, error: object) -> str:
    text = str(error).replace(uri, strip_credentials(uri)) or type(error).__name__
    text = re.sub(r"(?<=:)//[^/\s]*@", "//", text)  # a URI that was put together anew, from parts of ours
    return f"{strip_credentials(uri)}: {text}"


def _refusal(uri: str, error: object) -> str:
    return (
        f"{_message(uri, error)}. Give MLflow's credentials in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD "
        "(or MLFLOW_TRACKING_TOKEN) or ~/.mlflow/credentials, or train now with tracking.offline=true"
    )


@dataclass
class Batch:
    """What one request carries, and how far the journal is shipped once it is acknowledged."""

    offset: int  # bytes
    time_ms: int = 0  # of the last record before the offset
    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)  # key, value, time in ms, step
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    num_bytes: int = 0

    def __len__(self) -> int:
        return len(self.metrics) + len(self.params) + len(self.tags)

    def add(self, kind: str, key: str, value: Any, time_ms: int, step: int) -> bool:
        """Add one value, or return False where it does not fit. Raises ValueError for what MLflow cannot hold."""
        _check_key(kind, key)
        if kind == "metrics":
            return self._add_metric(key, value, time_ms, step)
        if kind == "params":
            return self._add_text(self.params, MAX_PARAMS, key, _shortened(str(value), MAX_PARAM_CHARS))
        return self._add_text(self.tags, MAX_TAGS, key, _shortened(str(value), MAX_TAG_CHARS))

    def _add_metric(self, key: str, value: Any, time_ms: int, step: int) -> bool:
        if not isinstance(value, int | float):
            raise ValueError(f"metrics: the value of {key!r} is no number: {value!r}")
        # The request's JSON has a line for every field; a key that is not ASCII is escaped, six bytes a character.
        if not self._take(160 + len(key) * (1 if key.isascii() else 6), len(self.metrics) < MAX_METRICS):
            return False
        self.metrics.append((key, float(value), time_ms, step))
        return True

    def _add_text(self, texts: dict[str, str], limit: int, key: str, text: str) -> bool:
        if texts is self.params and texts.get(key, text) != text:
            raise ValueError(f"params: {key!r} is {text!r} after {texts[key]!r}; a param of MLflow never changes")
        if not self._take(60 + len(json.dumps(key)) + len(json.dumps(text)), len(texts) < limit):
            return False
        texts[key] = text
        return True

    def _take(self, num_bytes: int, below_own_limit: bool) -> bool:
        if not below_own_limit or len(self) >= MAX_ENTITIES or self.num_bytes + num_bytes > MAX_BYTES:
            return False
        self.num_bytes += num_bytes
        return True


def batches(path: Path, offset: int) -> Iterator[Batch]:
    """The journal from byte `offset` on, in requests as large as MLflow takes.

    A record may be split over two batches; then the first carries the offset before it, and what it shipped is sent
    again after a crash in between, which changes nothing.
    """
    batch, shipped = Batch(offset), offset
    for record, end in journal.read(path, offset):
        if record.kind in ("metrics", "params", "tags"):
            for key, value in record.values.items():
                if not batch.add(record.kind, key, value, record.time_ms, record.step):
                    yield batch
                    shipped = batch.offset
                    batch = Batch(batch.offset, batch.time_ms)
                    fitted = batch.add(record.kind, key, value, record.time_ms, record.step)
                    assert fitted, f"{key}: too large for an empty batch"
        batch.offset, batch.time_ms = end, record.time_ms
    if batch.offset > shipped:
        yield batch


@lru_cache(maxsize=4096)
def _check_key(kind: str, key: str) -> None:
    rooted = posixpath.normpath(key) != key or key == "." or key.startswith(("/", ".."))  # MLflow wants unique paths
    if not key or len(key) > MAX_KEY_CHARS or not KEY.fullmatch(key) or rooted:
        raise ValueError(
            f"{kind}: MLflow cannot take the key {key!r}: up to {MAX_KEY_CHARS} letters, digits, '_', '-', '.', ' ' "
            "and '/', and a path in its shortest form"
        )


def _shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


@dataclass
class State:
    """How far MLflow has a folder: the content of mirror.json."""

    tracking_uri: str  # without credentials
    experiment_id: str | None = None
    run_id: str | None = None
    num_creations: int = 0  # begun; the answer to one may be lost, so the next looks for its run first
    offset: int = 0  # bytes of the journal that are acknowledged
    time_ms: int = 0  # of the last record before the offset
    artifacts: dict[str, list[int]] = field(default_factory=dict)  # uploaded: size in bytes, modification time in ns
    status: str | None = None  # MLflow's, once the run is terminated there


class Mirror:
    """Mirrors one run folder or sweep folder; two mirrors of one folder, in two processes too, take turns.

    `tracking_uri` overrides the folder's, and may hold credentials: they stay in memory. Without it, credentials in
    $MLFLOW_TRACKING_URI are used where they belong to the folder's server. A folder that was mirrored to another
    server before is mirrored to this one from the start.
    """

    def __init__(self, folder: Path, tracking_uri: str | None = None) -> None:
        self.folder = folder
        self.info = run_folder.read_info(folder)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        given = absolute_uri(os.environ.get("MLFLOW_TRACKING_URI", ""))
        stored = self.info.tracking_uri
        self._uri = tracking_uri or (given if strip_credentials(given) == stored else stored)
        self.state = self._read_state()

    @property
    def run_id(self) -> str | None:
        return self.state.run_id

    @property
    def experiment_id(self) -> str | None:
        return self.state.experiment_id

    @property
    def complete(self) -> bool:
        """Whether MLflow holds the whole of a run that has ended, whoever brought it there."""
        state, result = self._read_state(), run_folder.read_result(self.folder)
        return (
            result is not None
            and state.status == STATUS[result.status]
            and state.artifacts == self._artifacts()
            and next(journal.read(self.folder / run_folder.JOURNAL, state.offset), None) is None
        )

    def step(self) -> int:
        """Ship what is new and return the number of rows: metric values, params and tags.

        Raises TrackingUnavailable, TrackingRefused, and ValueError for a row that MLflow can never hold.
        """
        with self._locked():
            return self._ship()

    def finish(self) -> None:
        """Ship the rest of an ended run and its files, and set its status and end time. Raises as `step` does."""
        with self._locked():
            if self.complete:
                return
            result = run_folder.read_result(self.folder)
            assert result is not None, f"{self.folder}: finish() before result.json"
            self._ship()
            run_id = self._ensure_run()
            self._upload(run_id)
            self._remove_doubles(run_id)
            failure_ms = result.failure.time_ms if result.failure else self.info.created_ms
            with self._answers():
                self._client.set_terminated(run_id, STATUS[result.status], self.state.time_ms or failure_ms)
            self.state.status = STATUS[result.status]
            self._save()

    def _ship(self) -> int:
        from mlflow.entities import Metric, Param, RunTag

        num_rows = 0
        run_id = self._ensure_run()
        for batch in batches(self.folder / run_folder.JOURNAL, self.state.offset):
            if len(batch):
                with self._answers():
                    self._client.log_batch(
                        run_id,
                        metrics=[Metric(*metric) for metric in batch.metrics],
                        params=[Param(*param) for param in batch.params.items()],
                        tags=[RunTag(*tag) for tag in batch.tags.items()],
                    )
            num_rows += len(batch)
            self.state.offset = batch.offset
            self.state.time_ms = batch.time_ms or self.state.time_ms
            self._save()
        return num_rows

    def _upload(self, run_id: str) -> None:
        for name, signature in self._artifacts().items():
            if self.state.artifacts.get(name) != signature:
                with self._answers():
                    self._client.log_artifact(run_id, str(self.folder / name))
                self.state.artifacts[name] = signature
                self._save()

    def _artifacts(self) -> dict[str, list[int]]:
        stats = {path.name: path.stat() for path in run_folder.artifacts(self.folder)}
        return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}

    def _ensure_run(self) -> str:
        """The run's id in MLflow, where it is created once: also when the answer to an earlier creation was lost."""
        if self.state.run_id:
            return self.state.run_id
        self.state.experiment_id = self._ensure_experiment()
        tags = {UID_TAG: self.info.uid, "mlflow.user": _owner(self.folder), **self._parent_tag()}
        if self.state.num_creations:
            self.state.run_id = next((run.info.run_id for run in self._runs_with_our_uid()), None)
        if not self.state.run_id:
            self.state.num_creations += 1
            self._save()
            with self._answers():
                run = self._client.create_run(self.state.experiment_id, self.info.created_ms, tags, self.info.name)
            self.state.run_id = run.info.run_id
        self._save()
        assert self.state.run_id
        return self.state.run_id

    def _ensure_experiment(self) -> str:
        name = self.info.experiment
        with self._answers():
            experiment = self._client.get_experiment_by_name(name)
            if experiment is None:
                try:
                    return self._client.create_experiment(name, artifact_location=_artifact_root(self._uri))
                except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
                    if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                        raise
                    experiment = self._client.get_experiment_by_name(name)  # another process was faster
        assert experiment is not None
        if experiment.lifecycle_stage != "active":
            raise TrackingRefused(
                f"{self.state.tracking_uri}: the experiment {name!r} is deleted: choose another tracking.experiment or "
                f"restore it with `mlflow experiments restore --experiment-id {experiment.experiment_id}`"
            )
        return str(experiment.experiment_id)

    def _parent_tag(self) -> dict[str, str]:
        parent = run_folder.parent_of(self.folder)
        if parent is None or not (parent / run_folder.RUN).exists():  # a job's folder may have been copied alone
            return {}
        mirror = Mirror(parent, self._uri)
        with mirror._locked():
            return {"mlflow.parentRunId": mirror._ensure_run()}

    def _runs_with_our_uid(self) -> list[Run]:
        with self._answers():
            assert self.state.experiment_id
            runs = self._client.search_runs(
                [self.state.experiment_id], f"tags.`{UID_TAG}` = '{self.info.uid}'", max_results=100
            )
        return sorted(runs, key=lambda run: (not run.data.metrics, run.info.run_id))

    def _remove_doubles(self, run_id: str) -> None:
        """Delete the empty run that a creation leaves when it lands after we gave it up and created another."""
        if self.state.num_creations < 2:
            return
        for run in self._runs_with_our_uid():
            if run.info.run_id != run_id and not run.data.metrics and not run.data.params:
                with self._answers():
                    self._client.delete_run(run.info.run_id)

    @cached_property
    def _client(self) -> MlflowClient:
        from mlflow import MlflowClient

        return MlflowClient(self._uri)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Turn whatever a request raises into TrackingUnavailable or TrackingRefused, without credentials."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException as error:
            status = error.get_http_status_code()
            if status in (401, 403):
                raise TrackingRefused(_refusal(self._uri, error)) from None
            if status in (400, 404):
                hint = f"{self.folder / run_folder.MIRROR} can be deleted to upload the folder as a new run"
                raise TrackingRefused(f"{_message(self._uri, error)}. {hint}") from None
            if "error_code" not in getattr(error, "json", {"error_code": ""}):
                check_server(self._uri)  # JSON of a proxy's own, of which MLflow drops the HTTP status: ask for it
            raise TrackingUnavailable(_message(self._uri, error)) from None
        except Exception as error:  # SQLAlchemy and the artifact stores' SDKs raise classes of their own
            raise TrackingUnavailable(_message(self._uri, f"{type(error).__name__}: {error}")) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.state = self._read_state()  # another mirror may have gone on
            yield

    def _read_state(self) -> State:
        uri = strip_credentials(self._uri)
        try:
            state = State(**run_folder.read_json(self.folder / run_folder.MIRROR))
        except FileNotFoundError:
            return State(uri)
        # Another server than before may have had the run even earlier: look for it there, as after a lost answer.
        return state if state.tracking_uri == uri else State(uri, num_creations=1)

    def _save(self) -> None:
        run_folder.write_json(self.folder / run_folder.MIRROR, asdict(self.state))


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:  # a container may know the number of a user and not the name
        return str(folder.stat().st_uid)


def _artifact_root(uri: str) -> str | None:
    """Where a database's artifacts go: beside it, wherever the process runs; a server decides for itself (None)."""
    path = _sqlite_path(uri)
    return None if path is None else (path.absolute().parent / "mlartifacts").as_uri()
