"""`report --check`: every number that is printed is recomputed from the journals, and a wrong one is found."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.studied import SWEEP, write_sweep
from tracking.__main__ import main
from tracking.audit.arithmetic import meets
from tracking.audit.audit import audit
from tracking.audit.run_figures import JournalFigures
from tracking.published import comparison
from tracking.report import report
from tracking.results.folder_runs import FolderRuns

LATE = r'("clock_sec": )[\d.]+(, "key": "eval_accuracy")'  # an evaluation's time in a journal
# By kind of table, the columns that hold no figure, or one that is in no journal.
WORDS = {"excluded": {"workload", "setting", "run", "why"}, "beside": {"hardware"}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit")
    write_sweep(root / "runs", "sqlite:///none.db")
    return root


@pytest.fixture(scope="module")
def content(root: Path) -> dict[str, Any]:
    """A report on one and two GPUs, not to be changed."""
    return plain(root, ["gpus"])


def plain(root: Path, by: list[str], metric: str | None = None) -> dict[str, Any]:
    """A report with every kind of table, as JSON."""
    store = FolderRuns([root / "runs"])
    made = report.make(store, [SWEEP], store.find([SWEEP]), by, metric)
    comparison.add_published(made, ["fashion_mnist"])
    return made.plain()


def tampered(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """For every number of the tables and the answer, what it is, and the report with its last digit changed."""
    for place, table in enumerate(content["tables"]):
        for number, row in enumerate(table["rows"]):
            if table["kind"] == "beside" and not row[0].startswith("yours"):
                continue
            for column, (heading, text) in enumerate(zip(table["columns"], row, strict=True)):
                for changed in changes(text) if heading not in WORDS.get(table["kind"], ()) else ():
                    other = copy.deepcopy(content)
                    other["tables"][place]["rows"][number][column] = changed
                    yield f"{table['title']}, {heading}: {text} as {changed}", other
    for changed in changes(content["answer"]):
        yield changed, content | {"answer": changed}
    for part in ("sentences", "figures", "comparisons", "spent_usd", "reached"):
        for place in numbers(content[part]):
            other = copy.deepcopy(content)
            *above, last = place
            holder = functools.reduce(lambda inner, key: inner[key], above, other[part])
            holder[last] = changed_value(holder[last])
            yield f"{part} {place}: {holder[last]}", other
    for place, record in enumerate(content["sentences"]):
        for changed in changes(record["text"]):  # with the template, and without
            for template in (record["template"], changed):
                other = copy.deepcopy(content)
                other["sentences"][place] |= {"text": changed, "template": template}
                yield f"{record['kind']}: {changed}", other


def numbers(node: Any) -> Iterator[tuple[Any, ...]]:
    """Where in a part of the JSON the numbers are, and the texts that are one with its error."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in numbers(value))
        elif isinstance(value, int | float) or (key == "figure" and re.match(r"\d", value)):
            yield (key,)


def changed_value(value: Any) -> Any:
    if isinstance(value, str):
        return list(changes(value))[-1]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 1.1 * value + 0.001


def changes(text: str) -> Iterator[str]:
    for match in re.finditer(r"\d(?!\d)", text):
        yield text[: match.start()] + str((int(match[0]) + 5) % 10) + text[match.end() :]


@pytest.mark.slow
@pytest.mark.parametrize("metric", [None, "throughput/samples_per_sec"])
def test_every_number_that_is_printed_is_recomputed(
    root: Path, metric: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A journal is read once, and not 200 times.
    monkeypatch.setattr("tracking.audit.evidence.JournalFigures", functools.cache(JournalFigures))
    content = plain(root, ["gpus", "precision"], metric)
    assert audit(content, [root]).differences == []
    kinds = {table["kind"] for table in content["tables"]}
    assert kinds == {"settings", "pairs", "speed-ups", "excluded", "beside"}
    others = list(tampered(content))
    assert len(others) > 100
    assert [what for what, other in others if not audit(other, [root]).differences] == []


def test_a_column_of_blanks_a_missing_row_and_an_unknown_table_are_found(root: Path, content: dict[str, Any]) -> None:
    for table in content["tables"]:
        if table["kind"] in ("settings", "pairs", "excluded"):
            other = copy.deepcopy(content)
            own = next(candidate for candidate in other["tables"] if candidate["kind"] == table["kind"])
            del own["rows"][0]
            assert audit(other, [root]).differences, table["kind"]
    blank = copy.deepcopy(content)
    blank["tables"][0]["rows"][0][content["tables"][0]["columns"].index("samples/s")] = ""
    assert any("samples/s" in sentence for sentence in audit(blank, [root]).differences)
    other = copy.deepcopy(content)
    other["tables"][0]["kind"] = "new"
    assert any("cannot be recomputed" in sentence for sentence in audit(other, [root]).differences)


def test_the_worse_side_called_the_better_is_found(root: Path, content: dict[str, Any]) -> None:
    other = copy.deepcopy(content)
    pair = next(comparison for comparison in other["comparisons"] if comparison["better"] == {"gpus": "2"})
    assert pair["worse"] == {"gpus": "1"}
    pair["better"], pair["worse"] = pair["worse"], pair["better"]
    (sentence,) = audit(other, [root]).differences
    assert "gpus=1 is better than gpus=2" in sentence


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: re.sub(LATE, r"\g<1>99.0\2", text), "time to accuracy (s)"),
        (lambda text: text.replace('"samples": 128', '"samples": 130'), "samples/s"),
        (lambda text: text.replace('"key": "run_stop"', '"key": "run_stopped"'), "averages 5 runs, and by their"),
        (lambda text: text.replace('"gpus": 1', '"gpus": 3'), "not of the setting"),
        (lambda text: text.replace('"dataset": "digits"', '"dataset": "letters"'), "several models, datasets"),
    ],
    ids=["clock", "samples", "not ended", "setting", "workload"],
)  # fmt: skip
def test_a_figure_that_the_journals_do_not_have_fails_the_check(
    root: Path, tmp_path: Path, content: dict[str, Any], change: Callable[[str], str], named: str
) -> None:
    shutil.copytree(root / "runs", tmp_path / "runs")
    journal = tmp_path / "runs" / SWEEP / "vgg-digits-fp32-1gpu-seed1" / "journal.jsonl"
    assert change(journal.read_text()) != journal.read_text()
    journal.write_text(change(journal.read_text()))
    assert named in " ".join(audit(content, [tmp_path]).differences)


@pytest.mark.parametrize("seed", [11, 13, 15])
def test_a_run_that_did_not_get_there_and_is_left_out_is_found(
    root: Path, tmp_path: Path, content: dict[str, Any], seed: int
) -> None:
    """Diverged, missed, timed out: as if it had failed of something else, and as if it had gone on for longer."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    folder = tmp_path / "runs" / SWEEP / f"vgg-digits-fp32-4gpu-seed{seed}"
    result, journal = folder / "result.json", folder / "journal.jsonl"
    before = result.read_text(), journal.read_text()
    result.write_text(json.dumps({"status": "failed", "failure": {"kind": "oom", "message": ""}}))
    assert "time to accuracy (s): averages 6 runs, and by their journals 5 should count" in " ".join(
        audit(content, [tmp_path]).differences
    )
    result.write_text(before[0])
    longer = before[1].replace('"key": "eval_stop"', '"key": "eval_end"').replace("run_stop", "run_end")
    journal.write_text(longer + json.dumps({"kind": "event", "key": "run_stop", "clock_sec": 99.0}) + "\n")
    assert ("time to accuracy (s)" in " ".join(audit(content, [tmp_path]).differences)) == (seed != 11)


def test_runs_of_older_versions_count_by_what_was_timed(root: Path, tmp_path: Path) -> None:
    """Without `time/censored_sec`: a missed target by its epochs and evaluations; of a timeout nothing says when."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    for journal in (tmp_path / "runs" / SWEEP).glob("*/journal.jsonl"):
        journal.write_text(journal.read_text().replace('"time/censored_sec"', '"time/other_sec"'))
    made = plain(tmp_path, ["gpus"])
    assert audit(made, [tmp_path]).differences == []
    (four,) = [
        figure
        for figure in made["figures"]
        if figure["figure"].startswith("time to") and figure["setting"]["gpus"] == "4"
    ]
    assert (four["n"], four["bound"]) == (6, "≥")
    assert "gpus=4: of 1 run that did not reach the target nothing says by when" in " ".join(made["warnings"])


def test_a_damaged_folder_of_another_run_is_passed_over(root: Path, content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"na')
    assert audit(content, [tmp_path, root]).differences == []


def test_a_run_without_its_folder_fails_the_check(content: dict[str, Any], tmp_path: Path) -> None:
    assert "no run folder at or below" in audit(content, [tmp_path]).differences[0]


@pytest.mark.parametrize(
    "broken",
    [
        "tracking.compare.estimates.mean_and_standard_error",
        "tracking.compare.estimates.olympic_mean",
        "tracking.compare.estimates.t_test",
    ],
)
def test_an_error_in_the_reports_arithmetic_fails_the_command(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    def off(*_: Any, **__: Any) -> Any:
        return (1.0, 0.1) if broken.endswith("error") else 0.017

    # Without the error the same command says that all agree: tests/tracking/report/test_endings.py.
    command = ["report", SWEEP, "--out", str(tmp_path), "--check", "--from-folders", "--runs-dir", str(root / "runs")]
    monkeypatch.setattr(broken, off)
    assert main(command) == 1
    assert "do not agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "target"), [(math.inf, "0.9"), (-math.inf, "<=0.9"), (math.nan, "0.9"), (None, "0.9")]
)
def test_what_is_not_finite_meets_no_target_in_the_check_either(value: float | None, target: str) -> None:
    assert not meets(value, target)
    assert meets(0.9, target)
