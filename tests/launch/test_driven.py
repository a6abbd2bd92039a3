"""launch.py for a program that drives it: one JSON object a line on standard output, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import HANGS_SEC, ROOT, TINY, environment
from tests.support.event_schema import SCHEMA, fields_of, strict
from tests.support.forked import Forked
from tests.support.searched_program import that_ends, trace, words

pytestmark = pytest.mark.slow


def events(cwd: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, every line of standard output, and what was said on standard error."""
    ran = Forked(["--json", *arguments], cwd, environment(), apart=True)
    output, errors = ran.communicate(timeout=HANGS_SEC)
    lines = [json.loads(line) for line in output.splitlines()]
    for line in lines:
        strict().validate(line)
    return ran.wait(), lines, errors


def test_a_sweep_tells_each_jobs_life(tmp_path: Path) -> None:
    code, told, said = events(tmp_path, "-m", *that_ends(tmp_path, "batch_size=32"), "seed=1,2")
    assert code == 0, said
    kinds = [event["event"] for event in told]
    assert kinds[:2] == ["composed", "composed"]
    assert kinds[-1] == "ended"
    assert told[-1]["code"] == 0
    for name in {event["run"] for event in told if event["event"] == "started"}:
        life = [event["event"] for event in told if event.get("run") == name and event["event"] != "composed"]
        assert life[0] == "started"
        assert life[-1] in ("reached", "missed", "finished")
        assert "evaluated" in life[1:-1]
    assert len([event for event in told if event["event"] == "started"]) == 2
    assert "sweep folder:" in said  # for people, as ever


@pytest.mark.exhaustive
def test_a_search_tells_each_job_before_it_starts_and_then_its_answer(tmp_path: Path) -> None:
    asked = words(tmp_path, "batch_size=1,2", "model.optimizer.lr=0.01", "search.budget=20runs")
    code, told, said = events(tmp_path, *asked, "search.objective=time,cost", "price_per_hour=36")
    assert code == 0, said
    for number, event in enumerate(told):
        if event["event"] == "started":
            composed = [before["overrides"] for before in told[:number] if before["event"] == "composed"]
            assert composed[-1] == event["overrides"]
    [answer] = [event for event in told if event["event"] == "answer"]
    assert answer["words"] in said.replace("\n", " ")
    assert {key: value for key, value in answer.items() if key not in ("event", "version", "time_ms")} == (
        trace(tmp_path)["answer"]
    )
    looks = [event for event in told if event["event"] == "looked"]  # one or more: on a busy machine, times scatter
    assert looks[0]["blocks"] == 3
    assert (looks[-1]["named"], len(looks)) == (answer["named"], answer["looks"])
    known = {name for part in (SCHEMA, *SCHEMA["$defs"].values()) for name in part.get("properties", ())}
    absent = {"because", "failure", "energy"}  # of runs that fail, and of GPUs
    assert known - absent <= {name for event in told for name in fields_of(event)}


def test_a_refusal_is_an_event_too(tmp_path: Path) -> None:
    code, told, said = events(tmp_path, *TINY, "gpus=some")
    assert (code, [event["event"] for event in told]) == (2, ["refused", "ended"])
    assert "gpus=some" in told[0]["because"]
    assert told[0]["because"] in said
    assert told[0].keys() == {"event", "version", "time_ms", "because"}


@pytest.mark.exhaustive
def test_the_last_event_has_the_exit_code_of_hydras_own_words(tmp_path: Path) -> None:
    for word, expected in (("--help", 0), ("--no-such-flag", 2)):
        code, told, _ = events(tmp_path, word)
        assert (code, [event["event"] for event in told], told[-1]["code"]) == (expected, ["ended"], expected)


def test_the_page_lists_the_events_of_the_schema() -> None:
    page = (ROOT / "docs/driven.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert listed == SCHEMA["properties"]["event"]["enum"]
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 20
    compile(code, "driven.md", "exec")
