"""Read runs from run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tracking.analysis.results.runs import MAX_LISTED, History, Progress, Run, names_nothing, no_file, told
from tracking.record import documents, files, run_folder
from tracking.store.mirror import STATUS, UID_TAG, end_tags, log_batches


class FolderRuns:
    """Runs of the folders at or below `roots`, with the values that the mirror ships to MLflow.

    An unreadable folder is skipped; `tell` gets the reason.
    """

    def __init__(self, roots: Sequence[Path], tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self._roots = [Path(root) for root in roots]
        self.source = ", ".join(map(str, self._roots))
        self._folders: dict[str, Path] = {}  # by run id

    def find(self, selectors: Sequence[str], progress: Progress | None = None) -> list[Run]:
        known: dict[Path, Run] = {}
        roots = [*self._roots, *(Path(selector) for selector in selectors if Path(selector).is_dir())]
        for folder in dict.fromkeys(path.resolve() for root in roots for path in run_folder.run_folders(root)):
            try:
                run = self._read(folder)
            except Exception as error:  # anybody may have written the folder; the other runs are readable
                self._tell(f"skipped: {folder}: {type(error).__name__}: {error}")
                continue
            if run:
                known[folder] = run
                if progress:
                    progress(len(known))
        selected: dict[str, Run] = {}  # by run id
        for selector in selectors:
            runs = [run for folder, run in known.items() if _names(selector, folder, run)]
            if not runs:
                sweeps = sorted({run.sweep for run in known.values() if run.sweep}, reverse=True)
                experiments = sorted({run.experiment for run in known.values()})
                raise ValueError(names_nothing(selector, self.source, sweeps[:MAX_LISTED], experiments))
            selected |= {run.id: run for run in runs}
        return sorted(selected.values(), key=lambda run: (run.start_ms, run.name))

    def history(self, run: Run, keys: Iterable[str]) -> History:
        names = set(keys)
        rows: dict[str, set[tuple[int, int, float]]] = {}  # by key, without duplicates
        for batch in log_batches(self._folders[run.id] / run_folder.JOURNAL, 0):
            for key, value, time_ms, step in batch.metrics:
                if key in names:
                    rows.setdefault(key, set()).add((step, time_ms, value))
        return {key: sorted(values) for key, values in rows.items()}

    def text(self, run: Run, name: str) -> str:
        try:
            return files.read_text(self._folders[run.id] / name)
        except FileNotFoundError:
            raise no_file(run, name, self._folders[run.id]) from None

    def _read(self, folder: Path) -> Run | None:
        """The run of a folder; None for a sweep's folder."""
        info = run_folder.read_info(folder)
        if info.kind != "run":
            return None
        params: dict[str, str] = {}
        tags = {UID_TAG: info.uid}
        newest: dict[str, tuple[int, int, float]] = {}
        time_ms = 0
        try:
            for batch in log_batches(folder / run_folder.JOURNAL, 0):
                params |= batch.params
                tags |= batch.tags
                time_ms = max(time_ms, batch.time_ms)
                for key, value, at_ms, step in batch.metrics:
                    newest[key] = max(newest.get(key, (step, at_ms, value)), (step, at_ms, value))  # MLflow's order
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
        result = run_folder.read_result(folder)
        failure = result.failure if result else None
        if result:  # the mirror also reads the end from result.json
            tags |= end_tags(result, params | tags)
        run_id = _run_id(folder) or info.uid
        self._folders[run_id] = folder
        metrics = {key: value for key, (_, _, value) in newest.items()}
        status = STATUS[result.status] if result else "RUNNING"
        end_ms = max(time_ms, info.created_ms, failure.time_ms if failure else 0) if result else None
        return Run(
            run_id, info.name, info.experiment, status, info.created_ms, end_ms, params, tags, told(metrics, tags)
        )


def _run_id(folder: Path) -> str | None:
    """The run's id in MLflow; None if the run was never uploaded."""
    mirror = folder / run_folder.MIRROR
    return documents.read_json(mirror).get("run_id") if files.exists(mirror) else None


def _names(selector: str, folder: Path, run: Run) -> bool:
    path = Path(selector).resolve()
    by_path = Path(selector).is_dir() and (folder == path or path in folder.parents)
    return by_path or selector in (run.sweep, run.experiment, run.id, run.name, folder.name)
