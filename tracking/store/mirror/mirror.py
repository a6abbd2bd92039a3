"""The mirror of a run's folder to MLflow: ships what is new in the journal, resumes where it stopped, never twice.

The folder alone suffices: run.json says which run it is, mirror.json how far MLflow has it. MLflow is imported with
the first request, because the import takes seconds. `tracking.jobs.follow.sync` runs mirrors: one beside
a training, or many.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracking.base.secrets import strip_credentials
from tracking.record import NOTE_TAG, Result, documents, files, journal, node_records, run_folder
from tracking.store.mirror import claim, description, mlflow_run, row_uploads, server_check, state
from tracking.store.mirror.artifact_uploads import ArtifactUploads
from tracking.store.mirror.log_batches import log_batches
from tracking.store.mirror.mlflow_run import BACK_TAG, UID_TAG, VIEW_TAG
from tracking.store.mirror.model_upload import ModelUpload
from tracking.store.mirror.state import STATUS, MirrorState
from tracking.store.server import ENVIRONMENT, PatientClient, TrackingRefused, TrackingUnavailable, absolute_uri

LOCK = ".mirror.lock"


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
        uri = tracking_uri or (given if strip_credentials(given) == stored else stored)
        hint = f"{folder / run_folder.MIRROR} can be deleted to upload the folder as a new run"
        self._client = PatientClient(uri, hint)
        self._uploads = ArtifactUploads(folder, self._client)
        self._model = ModelUpload(folder, self._client)
        self._seen: str | None = None  # the run that was found to be this folder's
        self.state = self._load()

    @property
    def run_id(self) -> str | None:
        return self.state.run_id

    @property
    def experiment_id(self) -> str | None:
        return self.state.experiment_id

    @property
    def complete(self) -> bool:
        """Whether MLflow holds the whole of a run that has ended, whoever brought it there."""
        return state.complete(self.folder, self._load())

    def step(self) -> int:
        """Ship what is new and return the number of rows: metric values, params and tags.

        Raises TrackingUnavailable, TrackingRefused, and OSError where mirror.json cannot be written.
        """
        with self._locked():
            return self._ship()

    def finish(self) -> None:
        """Ship the rest of an ended run, set its status and end time, and upload its files; compare what is there then.

        What the server has acknowledged and does not hold is sent once more. Raises as `step` does.
        """
        with self._locked():
            result = run_folder.read_result(self.folder)
            if result is None or self.complete:  # without a result, it was taken up again meanwhile
                return
            self.state.compared = False
            self._until_held(lambda: self._send_rows(result))
            self._until_held(lambda: self._uploads.send(self._ensure_run(), self.state, self._save))
            self._until_held(lambda: self._model.send(self._ensure_run(), self.state, self._save))
            self.state.compared = True
            self._save()

    def _until_held(self, send: Callable[[], list[str]]) -> None:
        """Send, and send once more what the server lacks after that, which is what `send` returns."""
        if send() and (lacks := send()):
            words = f"the server has acknowledged what it does not hold: {server_check.in_words(lacks)}"
            raise TrackingUnavailable(f"{strip_credentials(self._client.uri)}: {words}. It will be sent again")

    def _send_rows(self, result: Result) -> list[str]:
        self._ship()
        run_id = self._ensure_run()
        end_tags = self._end(run_id, result)
        if self.state.num_creations > 1 and self.state.experiment_id:
            claim.remove_doubles(self._client, self.state.experiment_id, self.info.uid, run_id)
        wanted = server_check.expected(self.folder, end_tags, self.state.left_out)
        lacks = server_check.lacking(self._client, run_id, wanted, STATUS[result.status])
        if lacks:
            self.state.offset, self.state.params, self.state.status, self.state.others = 0, {}, None, {}
            self._save()
        return lacks

    def forget(self) -> None:
        """Have everything sent again, to the same run; for a server that has lost some of it."""
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
        num_rows, path, own = 0, self.folder / name, name == run_folder.JOURNAL
        offset = self.state.offset if own else max(0, self.state.others.get(name, 0))
        if files.exists(path) and path.lstat().st_size < offset:
            offset = 0  # a machine that went down lost the journal's last lines, and others took their place
        for batch in log_batches(path, offset, self.state.params):
            left_out = row_uploads.send(self._client, run_id, self.info.uid, batch) if len(batch) else []
            num_rows += len(batch)
            if own:
                self.state.offset = batch.offset
            else:
                self.state.others[name] = batch.offset
            self.state.params |= batch.params
            self.state.time_ms = max(batch.time_ms, self.state.time_ms)  # a wall clock can be set back
            self.state.refused += [words for words in batch.refused if words not in self.state.refused]
            self.state.left_out += [name for name in left_out if name not in self.state.left_out]
            self._save()
        return num_rows

    def _reopen(self, run_id: str) -> None:
        """Have a run that had ended run again: its folder was taken up once more."""
        self._drop_failure(run_id)
        with self._client.request() as client:
            client.update_run(run_id, "RUNNING")
        self.state.status = None
        self._save()

    def _end(self, run_id: str, result: Result) -> Iterable[str]:
        """Say how the run ended; the tags that say so."""
        from mlflow.entities import RunTag

        failure = result.failure
        if failure:
            self.state.failure = failure.kind
            self._save()
        else:
            self._drop_failure(run_id)
        values = description.recorded(self.folder)
        tags = description.end_tags(result, values)
        if self.info.kind == "sweep":
            tags.pop(NOTE_TAG, None)  # its journal has one
        if tags:
            with self._client.request() as client:
                client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])
        if others_id := values.get(journal.LINK_TAG):
            with suppress(TrackingRefused):  # It may be of another server, or deleted.
                claim.add_tags(self._client, others_id, {BACK_TAG: run_id})
        if datasets := description.dataset_inputs(values):
            with suppress(TrackingRefused), self._client.request() as client:  # a store may have no place for them
                client.log_inputs(run_id, datasets)
        self._share_view()
        end_ms = max(self.state.time_ms, self.info.created_ms, failure.time_ms if failure else 0)
        with self._client.request() as client:
            client.set_terminated(run_id, STATUS[result.status], end_ms)
        self.state.status = STATUS[result.status]
        self._save()
        return tags

    def _share_view(self) -> None:
        """Put a sweep's view where MLflow's UI opens it from; where the server does not take it, links go without."""
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
        with self._client.request() as client:  # a sweep's description is of its journal
            mlflow_run.drop_tags(client, run_id, ["failure"] if self.info.kind == "sweep" else ["failure", NOTE_TAG])
        self.state.failure = None
        self._save()

    def _ensure_run(self) -> str:
        """The run's id in MLflow: that of the state if its run bears the folder's uid, else of one that is claimed."""
        run_id, experiment_id = self.state.run_id, self.state.experiment_id
        if run_id and run_id != self._seen and not claim.is_ours(self._client, run_id, experiment_id, self.info.uid):
            self.state = MirrorState(self.state.tracking_uri, num_creations=1)  # another folder's, or taken back since
        if not self.state.run_id:
            self._claim_run()
        self._seen = self.state.run_id
        assert self._seen
        return self._seen

    def _claim_run(self) -> None:
        with self._client.request() as client:
            experiment_id = mlflow_run.ensure_experiment(client, self._client.uri, self.info.experiment)
        self.state.experiment_id = experiment_id
        with suppress(TrackingRefused), self._client.request() as client:  # Then MLflow guesses the kind.
            mlflow_run.declare_kind(client, experiment_id)
        owner = {"mlflow.user": mlflow_run.folder_owner(self.folder)}
        parent, num_creations = self._parent_tag(), self.state.num_creations
        tags = {UID_TAG: self.info.uid, **owner, **mlflow_run.SOURCE, **parent}

        def create() -> str:
            self.state.num_creations += 1
            self._save()
            with self._client.request() as client:
                run = client.create_run(experiment_id, self.info.created_ms, tags, self.info.name)
            return mlflow_run.answered(run.info.run_id, "a new run")

        self.state.run_id = claim.claim(self._client, experiment_id, self.info.uid, create)
        if parent and self.state.num_creations == num_creations:  # a copy that lies outside of the sweep can be first
            claim.add_tags(self._client, self.state.run_id, parent)
        self._save()

    def _parent_tag(self) -> dict[str, str]:
        parent = run_folder.parent_of(self.folder)
        if parent is None or not files.exists(parent / run_folder.RUN):  # a job's folder may have been copied alone
            return {}
        mirror = Mirror(parent, self._client.uri)
        with mirror._locked():
            return {"mlflow.parentRunId": mirror._ensure_run()}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The kernel releases it when a mirror dies. A lock of another kind, which would outlive it, is none at all.
        with files.opened(self.folder / LOCK, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.state = self._load()  # another mirror may have gone on
            try:
                yield
            except TrackingRefused:
                self._seen = None  # its run may have been taken back
                raise

    def _load(self) -> MirrorState:
        return state.load(self.folder, strip_credentials(self._client.uri))

    def _save(self) -> None:
        state.save(self.folder, self.state)
