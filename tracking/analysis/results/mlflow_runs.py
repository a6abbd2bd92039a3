"""Read runs from MLflow: from a tracking server or a database."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tracking.analysis.results.runs import MAX_LISTED, History, Progress, Run, names_nothing, no_file, told
from tracking.base.installation import TRACKING
from tracking.base.secrets import strip_credentials
from tracking.record import documents, files, run_folder
from tracking.store import server
from tracking.store.mirror import MAX_TAG_CHARS
from tracking.store.server import ENVIRONMENT, TrackingRefused, TrackingUnavailable, open_client

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 200  # runs in a response; a run with 60 metrics takes some 10 KB of JSON


class MlflowRuns:
    """Runs of a tracking server or database. Every method may raise TrackingUnavailable and TrackingRefused.

    `uri` defaults to $MLFLOW_TRACKING_URI, else to mlflow.db in the current folder. It may hold credentials. Runs can
    also be named by their folders in `runs_dir`.
    """

    def __init__(self, uri: str | None = None, runs_dir: Path | None = None) -> None:
        self._uri = server.option_uri(uri)
        self._runs_dir = runs_dir or Path()
        self.source = strip_credentials(self._uri)
        if self._uri.startswith("sqlite:///") and not Path(urlsplit(self._uri).path[1:]).exists():
            raise ValueError(
                f"{self.source}: no such database. Next: give --uri or MLFLOW_TRACKING_URI, or --from-folders with"
                " --runs-dir"
            )
        self._artifact_uris: dict[str, str] = {}  # by run id
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        selected: dict[str, Run] = {}  # by run id
        for selector in selectors:
            runs = self._select(selector, progress or (lambda _: None))
            if not runs:
                raise ValueError(self._unknown(selector))
            selected |= {run.id: run for run in runs}
        return sorted(selected.values(), key=lambda run: (run.start_ms, run.name))

    def history(self, run: Run, keys: Iterable[str]) -> History:
        history: History = {}
        for key in keys:
            if key in run.metrics:
                with self._answers():
                    rows = self._client.get_metric_history(run.id, key)
                history[key] = sorted((row.step, row.timestamp, _as_logged(row.value)) for row in rows)
        return history

    def text(self, run: Run, name: str) -> str:
        root = urlsplit(self._artifact_uris.get(run.id, ""))
        if root.scheme == "file" and not self._uri.startswith("http"):  # the files are on this machine
            try:
                return files.read_text(Path(unquote(root.path)) / name)
            except FileNotFoundError:
                raise no_file(run, name, root.path) from None
        try:
            with tempfile.TemporaryDirectory() as folder, self._answers():
                return Path(self._client.download_artifacts(run.id, name, folder)).read_text(encoding="utf-8")
        except (TrackingUnavailable, TrackingRefused):  # stores report a missing file in different ways
            with self._answers():
                known = {file.path for file in self._client.list_artifacts(run.id)}
            if name in known:
                raise
        raise no_file(run, name, f"{self.source} (run {run.id})")

    def parent(self, sweep: str) -> Run | None:
        """The parent run of a sweep, or None."""
        runs = self._search(list(self._experiments), f"tags.sweep = '{sweep}'", lambda _: None)
        return next((run for run in runs if _is_parent(run)), None)

    def attach(self, run: Run, files: Iterable[Path], tags: Mapping[str, str]) -> None:
        """Upload files to a run as artifacts, and set tags. No other method writes."""
        with self._answers():
            for file in files:
                self._client.log_artifact(run.id, str(file))
            for key, value in tags.items():
                self._client.set_tag(run.id, key, value[:MAX_TAG_CHARS])

    def _select(self, selector: str, progress: Progress) -> list[Run]:
        name = Path(selector).name  # the selector may be a folder, and a sweep's folder has its id as name
        if runs := self._jobs("tags.sweep", name, progress):
            return runs
        if selector in self._experiments.values():
            ids = [key for key, value in self._experiments.items() if value == selector]
            return [run for run in self._search(ids, "", progress) if not _is_parent(run)]
        mirrors = [folder / run_folder.MIRROR for folder in (Path(selector), self._runs_dir / selector)]
        mirror = next((path for path in mirrors if path.exists()), None)
        run_id = documents.read_json(mirror)["run_id"] if mirror else selector
        return self._jobs("attributes.run_id", run_id, progress) or self._jobs("attributes.run_name", name, progress)

    def _jobs(self, attribute: str, value: str, progress: Progress) -> list[Run]:
        """The runs with this attribute; a sweep's parent run is replaced by the runs of its jobs."""
        quote = '"' if "'" in value else "'"
        if quote in value:
            return []  # MLflow's filters cannot quote it, and our names never hold both quotes
        runs = list(self._search(list(self._experiments), f"{attribute} = {quote}{value}{quote}", progress))
        if attribute != "tags.sweep" and runs and _is_parent(runs[0]):
            return self._jobs("tags.sweep", runs[0].sweep or "", progress)
        return [run for run in runs if not _is_parent(run)]

    def _search(
        self,
        experiment_ids: list[str],
        search: str,
        progress: Progress,
        limit: int | None = None,
        order: str = "start_time ASC",
    ) -> Iterator[Run]:
        token, number = None, 0
        while experiment_ids and (limit is None or number < limit):
            with self._answers():
                page = self._client.search_runs(
                    experiment_ids,
                    search,
                    max_results=limit or PAGE,
                    order_by=[f"attributes.{order}"],
                    page_token=token,
                )
            number += len(page)
            progress(number)
            yield from map(self._run, page)
            token = page.token
            if not token:
                return

    def _run(self, mlflow_run: Any) -> Run:
        info, data = mlflow_run.info, mlflow_run.data
        self._artifact_uris[info.run_id] = info.artifact_uri
        return Run(
            info.run_id,
            info.run_name,
            self._experiments.get(info.experiment_id, info.experiment_id),
            info.status,
            info.start_time,
            info.end_time,
            data.params,
            data.tags,
            told({key: _as_logged(value) for key, value in data.metrics.items()}, data.tags),
        )

    def _unknown(self, selector: str) -> str:
        if selector in self._experiments.values():
            return (
                f"{selector}: this experiment of {self.source} has no runs yet. Next: train into it with "
                f"tracking.experiment={selector}, upload folders with `{TRACKING} sync`, or name another"
            )
        parents = self._search(
            list(self._experiments), "params.num_jobs LIKE '%'", lambda _: None, MAX_LISTED, "start_time DESC"
        )
        sweeps = [run.sweep for run in parents if run.sweep]
        return names_nothing(selector, self.source, sweeps, sorted(self._experiments.values()))

    @cached_property
    def _experiments(self) -> dict[str, str]:
        """The experiments' names by their ids."""
        names: dict[str, str] = {}
        token = None
        while True:
            with self._answers():
                page = self._client.search_experiments(max_results=1000, page_token=token)
            names |= {experiment.experiment_id: experiment.name for experiment in page}
            token = page.token
            if not token:
                return names

    @cached_property
    def _client(self) -> MlflowClient:
        with self._answers():  # a database that cannot be opened fails here
            return open_client(self._uri)

    def _answers(self) -> AbstractContextManager[None]:
        return server.as_tracking_errors(self._uri, "Start again: the runs may have been deleted meanwhile")


def _as_logged(value: float) -> float:
    """The value as it was logged: MLflow stores infinity as the largest float.

    sqlalchemy_store.sanitize_metric_value; no measurement gives the largest float.
    """
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value


def _is_parent(run: Run) -> bool:
    return "num_jobs" in run.params
