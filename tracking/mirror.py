"""The mirror of a run's folder to MLflow: ships what is new in the journal, resumes where it stopped, never twice.

The folder alone suffices: run.json says which run it is, mirror.json how far MLflow has it. MLflow is imported with
the first request, because the import takes seconds. `tracking.sync` runs mirrors: one beside a training, or many.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tracking import journal, run_folder
from tracking.batches import batches
from tracking.server import TrackingRefused, absolute_uri, answers, artifact_root, strip_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOCK = ".mirror.lock"
UID_TAG = "timetrial.uid"
STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}

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
            # of an earlier attempt there may be more, which it left under names without a number
            and state.artifacts.items() >= self._artifacts().items()
            and next(journal.read(self.folder / run_folder.JOURNAL, state.offset), None) is None
        )

    def step(self) -> int:
        """Ship what is new and return the number of rows: metric values, params and tags.

        Raises TrackingUnavailable, TrackingRefused, and ValueError for a row that MLflow can never hold.
        """
        with self._locked():
            if self.state.status and run_folder.read_result(self.folder) is None:
                self._reopen()
            return self._ship()

    def _reopen(self) -> None:
        """A run that had ended there has been resumed."""
        assert self.state.run_id
        with self._answers():
            self._client.update_run(self.state.run_id, "RUNNING")
        self.state.status = None
        self._save()

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
                        tags=[RunTag(key, text) for key, text in batch.tags.items() if text is not None],
                    )
            for key in (key for key, text in batch.tags.items() if text is None):
                self._remove_tag(run_id, key)
            num_rows += len(batch)
            self.state.offset = batch.offset
            self.state.time_ms = batch.time_ms or self.state.time_ms
            self._save()
        return num_rows

    def _remove_tag(self, run_id: str, key: str) -> None:
        with self._answers():
            try:
                self._client.delete_tag(run_id, key)
            except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
                if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                    raise  # else it was never there, or an answer was lost

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
                    return self._client.create_experiment(name, artifact_location=artifact_root(self._uri))
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

    def _answers(self) -> AbstractContextManager[None]:
        hint = f"{self.folder / run_folder.MIRROR} can be deleted to upload the folder as a new run"
        return answers(self._uri, hint)

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
