"""`report --check` of a study of stacks: every number of what is said of them, and what is left out of it."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.audit.test_audit import changed_value, changes, numbers
from tests.tracking.stack_study import A100, H100, report_of, write_study
from tracking.audit.audit import audit
from tracking.audit.run_figures import JournalFigures
from tracking.audit.stacks import KINDS
from tracking.report.plots import Plotter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stacks")
    write_study(root, "sqlite:///none.db", 4, {H100: 0.002, A100: 0.2}, ["12.4", "13.0"])
    return root


@pytest.fixture(params=[None, "throughput/samples_per_sec", "epochs/to_accuracy"])
def content(root: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    # A journal is read once, and nothing is drawn.
    monkeypatch.setattr("tracking.audit.evidence.JournalFigures", functools.cache(JournalFigures))
    monkeypatch.setattr(Plotter, "plots", lambda self: iter(()))
    return report_of(root, metric=request.param).plain()


def tampered(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is said of stacks with one number changed: in a cell, a note, a record's value or its text."""

    def other(place: int, part: str) -> tuple[dict[str, Any], dict[str, Any]]:
        whole = content | {part: [*content[part]]}
        whole[part][place] = copy.deepcopy(content[part][place])
        return whole, whole[part][place]

    for place, table in enumerate(content["tables"]):
        if table["kind"] not in ("stacks", "missing"):
            continue
        for number, row in enumerate(table["rows"]):
            for column, text in enumerate(row):
                for changed in changes(text):
                    whole, of = other(place, "tables")
                    of["rows"][number][column] = changed
                    yield f"{table['title']}: {text} as {changed}", whole
        for changed in changes(table["note"]) if table["kind"] == "stacks" else ():
            whole, of = other(place, "tables")
            of["note"] = changed
            yield changed, whole
    for place, record in enumerate(content["sentences"]):
        if record["kind"] not in KINDS:
            continue
        for above in numbers(record["values"]):
            whole, of = other(place, "sentences")
            of["values"][above[0]] = changed_value(of["values"][above[0]])
            of["text"] = of["template"].format(**of["values"])
            yield f"{record['kind']}: {above} {of['values'][above[0]]}", whole
        for key in ("interval", "difference", "better_usd", "worse_usd", "better", "worse", "why", "few", "among"):
            for changed in changes(record["values"].get(key, "")):
                whole, of = other(place, "sentences")
                of["values"][key] = changed
                of["text"] = of["template"].format(**of["values"])
                yield f"{record['kind']}: {key} as {changed}", whole


@pytest.mark.slow
def test_every_number_that_is_said_of_stacks_is_recomputed(root: Path, content: dict[str, Any]) -> None:
    assert audit(content, [root]).differences == []
    others = list(tampered(content))
    assert len(others) > 50
    some = random.sample(others, 40)  # others in each run, since all of them take a minute
    assert [what for what, other in some if not audit(other, [root]).differences] == []


def test_what_is_left_out_or_said_twice_is_found(root: Path, content: dict[str, Any]) -> None:
    for place, record in enumerate(content["sentences"]):
        if record["kind"] in KINDS:
            rest = [*content["sentences"][:place], *content["sentences"][place + 1 :]]
            assert audit(content | {"sentences": rest}, [root]).differences, record["kind"]
            twice = [*content["sentences"], record]
            assert audit(content | {"sentences": twice}, [root]).differences, record["kind"]
    for place, table in enumerate(content["tables"]):
        if table["kind"] in ("stacks", "missing"):
            rest = [*content["tables"][:place], *content["tables"][place + 1 :]]
            assert audit(content | {"tables": rest}, [root]).differences, table["kind"]
        if table["kind"] == "missing":
            for rows in (table["rows"][1:], [*table["rows"], table["rows"][0]]):
                short = [*content["tables"][:place], table | {"rows": rows}, *content["tables"][place + 1 :]]
                assert audit(content | {"tables": short}, [root]).differences


@pytest.mark.parametrize("content", [None], indirect=True)
def test_the_study_says_each_kind_of_sentence_but_that_of_one_run(content: dict[str, Any]) -> None:
    kinds = {record["kind"] for record in content["sentences"]} & KINDS
    assert kinds == {"best stack", "best stack saves", "no best stack", "runs that would decide"}
