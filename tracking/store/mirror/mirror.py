"""The mirror of a run's folder to MLflow: ships new journal records once, and continues where it stopped.

The folder is all that it needs: run.json identifies the run, mirror.json records what MLflow has. MLflow is imported
with the first request, since the import takes seconds. `tracking.jobs.follow.sync` runs mirrors: one beside a training,
or many.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracking.base.secrets import strip_credentials
from tracking.record import NOTE_TAG, Result, documents, files, journal, node_records, run_folder, run_lock
from tracking.store.mirror import description, mlflow_run, row_uploads, server_check, state
from tracking.store.mirror.artifact_uploads import ArtifactUploads
from tracking.store.mirror.log_batches import log_batches
from tracking.store.mirror.mlflow_run import BACK_TAG, UID_TAG, VIEW_TAG
from tracking.store.mirror.model_upload import ModelUpload
from tracking.store.mirror.state import STATUS, MirrorState
from tracking.store.server import ENVIRONMENT, PatientClient, TrackingRefused, TrackingUnavailable, absolute_uri

LOCK = ".mirror.lock"
LOCKED_SEC = 300.0  # how long a mirror waits for another one of its folder


class Mirror:
    """Mirrors one run folder or sweep folder. Mirrors of one folder take turns, even in different processes.

    `tracking_uri` overrides the folder's. Credentials in it stay in memory. Without it, credentials in
    $MLFLOW_TRACKING_URI are used if they belong to the folder's server. A folder that was mirrored to another server is
    mirrored to this one from the start.
    """

    def __init__(self, folder: Path, tracking_uri: str | None = None) -> None:
        self.folder = folder
        self.info = run_folder.read_info(folder)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        environment_uri = absolute_uri(os.environ.get("MLFLOW_TRACKING_URI", ""))
        stored = self.info.tracking_uri
        uri = tracking_uri or (environment_uri if strip_credentials(environment_uri) == stored else stored)
        hint = f"Next: delete {folder / run_folder.MIRROR} to upload the folder as a new run"
        self._client = PatientClient(uri, hint)
        self._artifact_uploads = ArtifactUploads(folder, self._client)
        self._model_upload = ModelUpload(folder, self._client)
        self._verified_run: str | None = None  # the run that was verified as this folder's
        self.state = self._load()

    @property
    def run_id(self) -> str | None:
        return self.state.run_id

    @property
    def experiment_id(self) -> str | None:
        return self.state.experiment_id

    @property
    def complete(self) -> bool:
        """Whether the run has ended and MLflow holds all of it, whichever mirror sent it."""
        return state.is_complete(self.folder, self._load())

    def step(self) -> int:
        """Ship new records; return the number of rows: metric values, params and tags.

        Raises TrackingUnavailable, TrackingRefused, OSError if mirror.json cannot be written or another mirror is busy.
        """
        with self._locked():
            return self._ship()

    def finish(self) -> None:
        """Ship the rest of an ended run, set its status and end time, upload its files, and compare with the server.

        Sends content again that the server acknowledged and does not have. Raises as `step` does.
        """
        with self._locked():
            result = run_folder.read_result(self.folder)
            if result is None or self.complete:  # without a result, the run was resumed meanwhile
                return
            self.state.compared = False
            self._send_until_complete(lambda: self._send_rows(result))
            self._send_until_complete(lambda: self._artifact_uploads.send(self._ensure_run(), self.state, self._save))
            self._send_until_complete(lambda: self._model_upload.send(self._ensure_run(), self.state, self._save))
            self.state.compared = True
            self._save()

    def _send_until_complete(self, send: Callable[[], list[str]]) -> None:
        """Call `send`, which returns what the server still misses, and once more if anything is missing."""
        if send() and (missing := send()):
            words = f"the server has acknowledged but does not hold {server_check.list_missing(missing)}"
            raise TrackingUnavailable(f"{strip_credentials(self._client.uri)}: {words}. Next: sync again")

    def _send_rows(self, result: Result) -> list[str]:
        self._ship()
        run_id = self._ensure_run()
        end_tags = self._record_end(run_id, result)
        if self.state.num_creations > 1 and self.state.experiment_id:
            mlflow_run.remove_duplicates(self._client, self.state.experiment_id, self.info.uid, run_id)
        expected = server_check.expected_content(self.folder, end_tags, self.state.left_out)
        missing = server_check.missing_content(self._client, run_id, expected, STATUS[result.status])
        if missing:
            self.state.offset, self.state.params, self.state.status, self.state.others = 0, {}, None, {}
            self._save()
        return missing

    def forget(self) -> None:
        """Forget what was sent, so that all is sent again to the same run; for a server that has lost data."""
        with self._locked():
            self.state = MirrorState(self.state.tracking_uri, num_creations=1)
            self._save()

    def _ship(self) -> int:
        run_id = self._ensure_run()
        if self.state.status and run_folder.read_result(self.folder) is None:
            self._reopen(run_id)
        return sum(
            self._ship_journal(run_id, name) for name in [run_folder.JOURNAL, *node_records.other_journals(self.folder)]
        )

    def _ship_journal(self, run_id: str, name: str) -> int:
        num_rows, path, is_head = 0, self.folder / name, name == run_folder.JOURNAL
        offset = self.state.offset if is_head else max(0, self.state.others.get(name, 0))
        if files.exists(path) and path.lstat().st_size < offset:
            offset = 0  # a crash of the machine lost the journal's last lines, and new ones were written
        for batch in log_batches(path, offset, self.state.params):
            refused_keys = row_uploads.send(self._client, run_id, self.info.uid, batch) if len(batch) else []
            num_rows += len(batch)
            if is_head:
                self.state.offset = batch.offset
            else:
                self.state.others[name] = batch.offset
            self.state.params |= batch.params
            self.state.time_ms = max(batch.time_ms, self.state.time_ms)  # a wall clock can be set back
            self.state.refused += [words for words in batch.refused if words not in self.state.refused]
            self.state.left_out += [name for name in refused_keys if name not in self.state.left_out]
            self._save()
        return num_rows

    def _reopen(self, run_id: str) -> None:
        """Set a run that had ended back to running, since it was resumed."""
        self._drop_failure(run_id)
        with self._client.request() as client:
            client.update_run(run_id, "RUNNING")
        self.state.status = None
        self._save()

    def _record_end(self, run_id: str, result: Result) -> Iterable[str]:
        """Record how the run ended in MLflow; return the tags that say so."""
        from mlflow.entities import RunTag

        failure = result.failure
        if failure:
            self.state.failure = failure.kind
            self._save()
        else:
            self._drop_failure(run_id)
        values = description.journal_values(self.folder)
        tags = description.end_tags(result, values)
        if self.info.kind == "sweep":
            tags.pop(NOTE_TAG, None)  # its journal holds the note
        if tags:
            run_tags = [RunTag(*tag) for tag in tags.items()]
            self._client.ask(lambda client: client.log_batch(run_id, tags=run_tags))
        if script_run_id := values.get(journal.LINK_TAG):
            with suppress(TrackingRefused):  # the run may be on another server, or deleted
                mlflow_run.add_tags(self._client, script_run_id, {BACK_TAG: run_id})
        if datasets := description.dataset_inputs(values):
            with suppress(TrackingRefused), self._client.request() as client:  # a store may not keep datasets
                client.log_inputs(run_id, datasets)
        self._share_view()
        end_ms = max(self.state.time_ms, self.info.created_ms, failure.time_ms if failure else 0)
        self._client.ask(lambda client: client.set_terminated(run_id, STATUS[result.status], end_ms))
        self.state.status = STATUS[result.status]
        self._save()
        return tags

    def _share_view(self) -> None:
        """Store a sweep's view for MLflow's UI; if the server refuses it, links do without the view."""
        view = self.folder / run_folder.VIEW
        if not files.exists(view):
            return
        assert self.state.experiment_id
        with suppress(TrackingRefused), self._client.request() as client:
            compact = json.dumps(documents.read_json(view), separators=(",", ":"))
            client.set_experiment_tag(self.state.experiment_id, VIEW_TAG + self.folder.name, compact)
            self.state.view = True

    def _drop_failure(self, run_id: str) -> None:
        if self.state.failure is None:
            return
        with self._client.request() as client:  # a sweep's description comes from its journal
            mlflow_run.drop_tags(client, run_id, ["failure"] if self.info.kind == "sweep" else ["failure", NOTE_TAG])
        self.state.failure = None
        self._save()

    def _ensure_run(self) -> str:
        """The run's id in MLflow: the state's, if that run has the folder's uid, else that of a claimed run."""
        run_id, experiment_id = self.state.run_id, self.state.experiment_id
        verified = run_id == self._verified_run
        if run_id and not verified and not mlflow_run.is_ours(self._client, run_id, experiment_id, self.info.uid):
            self.state = MirrorState(self.state.tracking_uri, num_creations=1)  # another folder's, or deleted since
        if not self.state.run_id:
            self._claim_run()
        self._verified_run = self.state.run_id
        assert self._verified_run
        return self._verified_run

    def _claim_run(self) -> None:
        with self._client.request() as client:
            experiment_id = mlflow_run.ensure_experiment(client, self._client.uri, self.info.experiment)
        self.state.experiment_id = experiment_id
        with suppress(TrackingRefused), self._client.request() as client:  # else MLflow guesses the kind
            mlflow_run.declare_kind(client, experiment_id)
        owner = {"mlflow.user": mlflow_run.folder_owner(self.folder)}
        parent, num_creations = self._parent_tag(), self.state.num_creations
        tags = {UID_TAG: self.info.uid, **owner, **mlflow_run.SOURCE, **parent}

        def create() -> str:
            self.state.num_creations += 1
            self._save()
            with self._client.request() as client:
                run = client.create_run(experiment_id, self.info.created_ms, tags, self.info.name)
            return mlflow_run.checked_id(run.info.run_id, "a new run")

        self.state.run_id = mlflow_run.claim(self._client, experiment_id, self.info.uid, create)
        if parent and self.state.num_creations == num_creations:  # a copy outside of the sweep may have created the run
            mlflow_run.add_tags(self._client, self.state.run_id, parent)
        self._save()

    def _parent_tag(self) -> dict[str, str]:
        parent = run_folder.parent_of(self.folder)
        if parent is None or not files.exists(parent / run_folder.RUN):  # a job may be copied without its sweep
            return {}
        mirror = Mirror(parent, self._client.uri)
        with mirror._locked():
            return {"mlflow.parentRunId": mirror._ensure_run()}

    @contextmanager  # The kernel releases the lock of a mirror that dies.
    def _locked(self) -> Iterator[None]:
        try:
            owner = run_lock.take(self.folder, LOCK, patience_sec=LOCKED_SEC)
        except run_lock.Running as error:
            raise TimeoutError(f"{self.folder}: is being uploaded ({error}). Next: wait for it, or stop it") from None
        with owner:
            self.state = self._load()  # another mirror may have continued
            try:
                yield
            except TrackingRefused:
                self._verified_run = None  # the run may have been deleted
                raise

    def _load(self) -> MirrorState:
        return state.load(self.folder, strip_credentials(self._client.uri))

    def _save(self) -> None:
        state.save(self.folder, self.state)
