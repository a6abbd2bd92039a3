"""Logs of MLPerf's later formats, written here with the shape of published ones, all names replaced."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracking.analysis.results import FolderRuns
from tracking.cli import main
from tracking.jobs.importing import LogOptions, import_log
from tracking.record import Result, run_folder

START_MS = 1_700_000_000_000
Said = tuple[float, str, Any, dict[str, Any]]  # seconds after the start, key, value, metadata


def line(second: float, key: str, value: Any = None, begin_ms: int = START_MS, **metadata: Any) -> str:
    content = {"namespace": "", "time_ms": int(begin_ms + 1000 * second), "event_type": "POINT_IN_TIME"}
    return f":::MLLOG {json.dumps(content | {'key': key, 'value': value, 'metadata': metadata})}"


def lines(benchmark: str, said: Iterable[Said], run: int = 0, **before: Any) -> list[str]:
    """A log: the lines before the clock starts, and then `said`."""
    begin_ms = START_MS + run * 10_000_000
    first = {"submission_benchmark": benchmark, "submission_org": "org", "submission_platform": "sys", "seed": run + 1}
    texts = [line(0, key, value, begin_ms) for key, value in (first | before).items()]
    texts.append(line(0, "run_start", None, begin_ms))
    return texts + [line(second, key, value, begin_ms, **metadata) for second, key, value, metadata in said]


def simple(
    benchmark: str, seconds: float, values: list[Any], run: int = 0, status: str | None = "success"
) -> list[str]:
    """A log with these evaluations, as equally far apart; without run_stop where `status` is None."""
    count = len(values)
    said: list[Said] = [
        (seconds * place / count, "eval_accuracy", value, {"samples_count": 1000 * place})
        for place, value in enumerate(values, 1)
    ]
    said += [] if status is None else [(seconds, "run_stop", None, {"status": status})]
    return lines(benchmark, said, run)


def written(path: Path, texts: Iterable[str]) -> Path:
    path.write_text("\n".join(texts) + "\n")
    return path


def imported(path: Path, texts: Iterable[str], **options: Any) -> tuple[Result, dict[str, str]]:
    """The result and the tags of the run that a log becomes."""
    path.mkdir(exist_ok=True)
    asked = LogOptions(path / "runs", "sqlite:///none.db", **{"gpus": 8, **options})
    folder = import_log(written(path / "result_0.txt", texts), asked).folder
    result = run_folder.read_result(folder)
    assert result is not None
    (run,) = FolderRuns([folder]).find([str(folder)])
    return result, dict(run.tags)


def figures(path: Path, texts: Iterable[str], **options: Any) -> dict[str, float]:
    return dict(imported(path, texts, **options)[0].metrics)


def scores(path: Path, logs: Iterable[Iterable[str]], capsys: Any) -> list[dict[str, Any]]:
    """What `import` and `mlperf` make of logs, as a user calls them."""
    files = [str(written(path / f"result_{run}.txt", texts)) for run, texts in enumerate(logs)]
    runs = str(path / "runs")
    assert main(["import", *files, "--gpus", "8", "--runs-dir", runs]) == 0
    capsys.readouterr()
    names = [folder.name for folder in Path(runs).iterdir()]
    main(["mlperf", *names, "--from-folders", "--runs-dir", runs, "--json"])
    content: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["scores"]
    return content
