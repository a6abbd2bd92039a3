"""YAML of a run's folder, which anybody may have written: read in no time, or refused."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import ConfigError
from tests.support.studied import config, make_run, make_sweep
from tracking.analysis.audit.evidence import selection
from tracking.cli import main
from tracking.record import run_folder
from tracking.request import stored_config

ANCHORS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
HOSTILE = {
    f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{ANCHORS}": "has an alias",
    "a: &a [*a]": "has an alias",
    "a: &a {<<: *a}": "has an alias",
    "[" * 50_000: "too deep. Allowed in a run's YAML: 32 levels",
    "- " * 400 + "x": "too deep. Allowed in a run's YAML: 32 levels",
    "{a: " * 40 + "1" + "}" * 40: "too deep. Allowed in a run's YAML: 32 levels",
    "a: " + "x" * 1_000_001: "has 1000004 characters",
    "!!python/object/apply:os.system [ls]": "is not YAML",
    "a: [": "is not YAML",
    "\x00": "is not YAML",
    f"a: {'9' * 5000}": "limit",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_no_run_has_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=HOSTILE[text]):
        stored_config.loaded(text)
    with pytest.raises(ConfigError, match=r"config\.yaml: .*put a copy in place"):
        stored_config.parse(text, "config.yaml")


def test_whole_numbers_are_those_that_a_float_can_hold() -> None:
    assert stored_config.loaded(f"[1, 0x10, {2**63 - 1}, {2**63}, -{'9' * 401}]") == [
        1, 16, 2**63 - 1, float(2**63), float("-inf"),
    ]  # fmt: skip


@given(st.text(alphabet="ab:-&*{}[],!<>|?'\"#% \n0") | st.text())
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        stored_config.loaded(text)


@pytest.mark.parametrize("text", list(HOSTILE)[:2])
def test_a_report_by_any_key_and_a_diff_pass_over_it(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make_sweep(tmp_path / "runs", "s", "sqlite:///x", 2)
    runs = [make_run(sweep, config(seed=seed), "sqlite:///x", 0.1) for seed in (1, 2)]
    (runs[0] / run_folder.CONFIG).write_text(text)
    folders = ["--from-folders", "--runs-dir", str(tmp_path / "runs")]
    assert main(["report", str(sweep), "--by", "model.workload", "--out", str(tmp_path / "out"), *folders]) == 0
    assert main(["diff", *map(str, runs), *folders]) == 0
    assert "has a damaged config.yaml" in capsys.readouterr().out


def test_an_audit_passes_over_a_folder_with_a_pipe_in_it(tmp_path: Path) -> None:
    """A file that it waited for would have no end."""
    sweep = make_sweep(tmp_path / "runs", "s", "sqlite:///x", 2)
    runs = [make_run(sweep, config(seed=seed), "sqlite:///x", 0.1) for seed in (1, 2)]
    assert len(selection.read([tmp_path])[0]) == 2
    (runs[0] / run_folder.RESULT).unlink()
    os.mkfifo(runs[0] / run_folder.RESULT)
    assert len(selection.read([tmp_path])[0]) == 1
