"""Runs as reports, diffs and gates read them: from MLflow, or from run folders. The same values from both.

store = MlflowRuns("http://mlflow:5000")          # or FolderRuns([Path("runs")])
runs = store.find(["20261121-080925-vgg-8b31"])   # a sweep, an experiment, a run's id, name or folder
store.history(runs[0], ["eval/accuracy"])         # {"eval/accuracy": [(step, time_ms, value), ...]}
store.text(runs[0], "config.yaml")
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from tracking import run_folder
from tracking.batches import MAX_TAG_CHARS, batches
from tracking.mirror import ENVIRONMENT, STATUS, UID_TAG
from tracking.server import TrackingRefused, TrackingUnavailable, absolute_uri, answers, default_uri, strip_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = 200  # runs a request: a run of 60 metrics is some 10 KB of JSON
LISTED = 10  # of what there is, where something unknown was asked for
History = dict[str, list[tuple[int, int, float]]]  # key: (step, time in ms, value), by step and time
Progress = Callable[[int], None]  # told how many runs of a selector were read so far


@dataclass(frozen=True)
class Run:
    """One run as it stands in MLflow; `metrics` are the newest values. A sweep's parent run is never one of these."""

    id: str
    name: str
    experiment: str
    status: str  # MLflow's: FINISHED | FAILED | KILLED | RUNNING
    start_ms: int
    end_ms: int | None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether it trained to its end, target reached or not."""
        return self.status == "FINISHED"

    @property
    def failure(self) -> str | None:
        """The kind of its failure (oom, nan, signal:9, ...), or None."""
        return self.tags.get("failure") or (None if self.status in ("FINISHED", "RUNNING") else "unknown")

    @property
    def sweep(self) -> str | None:
        return self.tags.get("sweep")

    @property
    def resumed(self) -> bool:
        """Whether it was interrupted and continued: then it has no time to accuracy."""
        return "resumed" in self.tags

    @property
    def missed(self) -> bool:
        """Whether it trained to its end and did not reach its target."""
        return self.finished and self.metrics.get("target_reached") == 0.0


class Runs(Protocol):
    """Where runs are read from. `source` names it in messages, without credentials."""

    source: str

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        """The runs that the selectors name, each once, by start. Raises ValueError for a selector that names none."""

    def history(self, run: Run, keys: Iterable[str]) -> History:
        """All values of these metrics; a key that the run has not got is left out."""

    def text(self, run: Run, name: str) -> str:
        """A file of the run, such as config.yaml or fingerprint.json. Raises FileNotFoundError where it has none."""


class MlflowRuns:
    """Runs of a tracking server or database. Every method may raise TrackingUnavailable and TrackingRefused.

    `uri` is by default $MLFLOW_TRACKING_URI, else mlflow.db in the current folder; it may hold credentials.
    """

    def __init__(self, uri: str | None = None) -> None:
        self._uri = absolute_uri(uri) if uri else default_uri()
        self.source = strip_credentials(self._uri)
        if self._uri.startswith("sqlite:///") and not Path(urlsplit(self._uri).path[1:]).exists():
            raise ValueError(
                f"{self.source}: no such database; give --uri or MLFLOW_TRACKING_URI, or --from-folders with --runs-dir"
            )
        self._artifact_uris: dict[str, str] = {}  # by run id
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        found: dict[str, Run] = {}
        for selector in selectors:
            runs = self._select(selector, progress or (lambda _: None))
            if not runs:
                raise ValueError(self._unknown(selector))
            found |= {run.id: run for run in runs}
        return sorted(found.values(), key=lambda run: (run.start_ms, run.name))

    def history(self, run: Run, keys: Iterable[str]) -> History:
        found: History = {}
        for key in keys:
            if key in run.metrics:
                with self._answers():
                    rows = self._client.get_metric_history(run.id, key)
                found[key] = sorted((row.step, row.timestamp, row.value) for row in rows)
        return found

    def text(self, run: Run, name: str) -> str:
        root = urlsplit(self._artifact_uris.get(run.id, ""))
        if root.scheme == "file" and not self._uri.startswith("http"):  # beside a database, which need not be asked
            try:
                return (Path(unquote(root.path)) / name).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise FileNotFoundError(f"{run.name} ({run.id}) has no file {name} in {root.path}") from None
        try:
            with tempfile.TemporaryDirectory() as folder, self._answers():
                return Path(self._client.download_artifacts(run.id, name, folder)).read_text(encoding="utf-8")
        except (TrackingUnavailable, TrackingRefused):  # stores tell in different ways that there is no such file
            with self._answers():
                known = {file.path for file in self._client.list_artifacts(run.id)}
            if name in known:
                raise
        raise FileNotFoundError(f"{run.name} ({run.id}) has no file {name} in {self.source}")

    def parent(self, sweep: str) -> Run | None:
        """The parent run of a sweep, or None where there is none."""
        found = self._search(list(self._experiments), f"tags.sweep = '{sweep}'", lambda _: None)
        return next((run for run in found if _is_parent(run)), None)

    def attach(self, run: Run, files: Iterable[Path], tags: Mapping[str, str]) -> None:
        """Upload files to a run as artifacts, and set tags: the one thing here that writes."""
        with self._answers():
            for file in files:
                self._client.log_artifact(run.id, str(file))
            for key, value in tags.items():
                self._client.set_tag(run.id, key, value[:MAX_TAG_CHARS])

    def _select(self, selector: str, progress: Progress) -> list[Run]:
        name = Path(selector).name  # of a folder, too: that of a sweep is named by its id
        if runs := self._jobs("tags.sweep", name, progress):
            return runs
        if selector in self._experiments.values():
            ids = [key for key, value in self._experiments.items() if value == selector]
            return [run for run in self._search(ids, "", progress) if not _is_parent(run)]
        mirrored = Path(selector) / run_folder.MIRROR
        run_id = run_folder.read_json(mirrored)["run_id"] if mirrored.exists() else selector
        return self._jobs("attributes.run_id", run_id, progress) or self._jobs("attributes.run_name", name, progress)

    def _jobs(self, attribute: str, value: str, progress: Progress) -> list[Run]:
        """The runs of this attribute; those of its jobs in place of a sweep's parent run."""
        quote = '"' if "'" in value else "'"
        if quote in value:
            return []  # MLflow's filters cannot hold it, and no name of ours is like that
        runs = list(self._search(list(self._experiments), f"{attribute} = {quote}{value}{quote}", progress))
        if attribute != "tags.sweep" and runs and _is_parent(runs[0]):
            return self._jobs("tags.sweep", runs[0].sweep or "", progress)
        return [run for run in runs if not _is_parent(run)]

    def _search(
        self, ids: list[str], words: str, progress: Progress, limit: int | None = None, order: str = "start_time ASC"
    ) -> Iterator[Run]:
        token, number = None, 0
        while ids and (limit is None or number < limit):
            with self._answers():
                page = self._client.search_runs(
                    ids, words, max_results=limit or PAGE, order_by=[f"attributes.{order}"], page_token=token
                )
            number += len(page)
            progress(number)
            yield from map(self._run, page)
            token = page.token
            if not token:
                return

    def _run(self, row: Any) -> Run:
        info, data = row.info, row.data
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
            data.metrics,
        )

    def _unknown(self, selector: str) -> str:
        parents = self._search(
            list(self._experiments), "params.num_jobs LIKE '%'", lambda _: None, LISTED, "start_time DESC"
        )
        sweeps = [run.sweep for run in parents if run.sweep]
        return _nothing(selector, self.source, sweeps, sorted(self._experiments.values()))

    @cached_property
    def _experiments(self) -> dict[str, str]:
        """Name by id."""
        found: dict[str, str] = {}
        token = None
        while True:
            with self._answers():
                page = self._client.search_experiments(max_results=1000, page_token=token)
            found |= {experiment.experiment_id: experiment.name for experiment in page}
            token = page.token
            if not token:
                return found

    @cached_property
    def _client(self) -> MlflowClient:
        with self._answers():  # a database that cannot be opened fails here
            from mlflow import MlflowClient

            return MlflowClient(self._uri)

    def _answers(self) -> AbstractContextManager[None]:
        return answers(self._uri, "Start again: what was asked for may have been deleted meanwhile")


class FolderRuns:
    """Runs of the folders at or below `roots`, with the values that the mirror ships to MLflow."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [Path(root) for root in roots]
        self.source = ", ".join(map(str, self._roots))
        self._folders: dict[str, Path] = {}  # by run id

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        known: dict[Path, Run] = {}
        roots = [*self._roots, *(Path(selector) for selector in selectors if Path(selector).is_dir())]
        for folder in dict.fromkeys(path.resolve() for root in roots for path in run_folder.run_folders(root)):
            if run_folder.read_info(folder).kind == "run":
                known[folder] = self._read(folder)
                if progress:
                    progress(len(known))
        found: dict[str, Run] = {}
        for selector in selectors:
            runs = [run for folder, run in known.items() if _names(selector, folder, run)]
            if not runs:
                sweeps = sorted({run.sweep for run in known.values() if run.sweep}, reverse=True)
                experiments = sorted({run.experiment for run in known.values()})
                raise ValueError(_nothing(selector, self.source, sweeps[:LISTED], experiments))
            found |= {run.id: run for run in runs}
        return sorted(found.values(), key=lambda run: (run.start_ms, run.name))

    def history(self, run: Run, keys: Iterable[str]) -> History:
        asked = set(keys)
        found: dict[str, set[tuple[int, int, float]]] = {}
        for batch in batches(self._folders[run.id] / run_folder.JOURNAL, 0):
            for key, value, time_ms, step in batch.metrics:
                if key in asked:
                    found.setdefault(key, set()).add((step, time_ms, value))
        return {key: sorted(rows) for key, rows in found.items()}

    def text(self, run: Run, name: str) -> str:
        try:
            return (self._folders[run.id] / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise FileNotFoundError(f"{run.name} has no file {name} in {self._folders[run.id]}") from None

    def _read(self, folder: Path) -> Run:
        info = run_folder.read_info(folder)
        params: dict[str, str] = {}
        tags = {UID_TAG: info.uid}
        newest: dict[str, tuple[int, int, float]] = {}
        time_ms = 0
        try:
            for batch in batches(folder / run_folder.JOURNAL, 0):
                params |= batch.params
                tags |= batch.tags
                time_ms = batch.time_ms
                for key, value, at_ms, step in batch.metrics:
                    newest[key] = max(newest.get(key, (step, at_ms, value)), (step, at_ms, value))  # MLflow's "newest"
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
        run_id, status = _identity(folder, info.uid)
        self._folders[run_id] = folder
        metrics = {key: value for key, (_, _, value) in newest.items()}
        end_ms = None if status == "RUNNING" else time_ms
        return Run(run_id, info.name, info.experiment, status, info.created_ms, end_ms, params, tags, metrics)


def need_finished(runs: Sequence[Run], selectors: Sequence[str]) -> None:
    """Raise ValueError where not one of the runs trained to its end."""
    if not any(run.finished for run in runs):
        kinds = Counter(run.failure or run.status.lower() for run in runs)
        ended = ", ".join(f"{kind} ({number})" for kind, number in kinds.most_common())
        raise ValueError(
            f"{' '.join(selectors)}: none of {len(runs)} runs finished: {ended}; their notes in MLflow and worker.log "
            "say why. Continue a sweep with launch.py sweep.resume=ID"
        )


def _is_parent(run: Run) -> bool:
    return "num_jobs" in run.params


def _identity(folder: Path, uid: str) -> tuple[str, str]:
    """The run's id in MLflow, or its own where MLflow has not got it; and its status."""
    mirrored, ended = folder / run_folder.MIRROR, folder / run_folder.RESULT
    run_id = run_folder.read_json(mirrored).get("run_id") if mirrored.exists() else None
    status = STATUS[run_folder.read_json(ended)["status"]] if ended.exists() else "RUNNING"
    return run_id or uid, status


def _names(selector: str, folder: Path, run: Run) -> bool:
    path = Path(selector).resolve()
    by_path = Path(selector).is_dir() and (folder == path or path in folder.parents)
    return by_path or selector in (run.sweep, run.experiment, run.id, run.name, folder.name)


def _nothing(selector: str, source: str, sweeps: Sequence[str], experiments: Sequence[str]) -> str:
    return (
        f"{selector}: no sweep, experiment or run of this name or id in {source}. There are the sweeps "
        f"{', '.join(sweeps) or '(none)'} and the experiments {', '.join(experiments) or '(none)'}"
    )
