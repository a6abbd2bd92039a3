"""Energy with the hosts' share does not compare with energy without it: reports warn, gates refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studied import CLOCKS, SWEEP, config, make_run, make_sweep
from tracking.analysis.compare.confounding import other_energy
from tracking.analysis.compare.gate import check_sides
from tracking.analysis.report import report
from tracking.analysis.results import Run
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.record import Journal, run_folder

SENTENCE = "kWh and CO2 include the hosts' energy in 2 runs (a), and not in 1 run (b), so they do not compare"


def run(number: int, **joules: float) -> Run:
    return Run(
        str(number), f"run{number}", "e", "FINISHED", 0, 1, metrics={f"energy/{k}": v for k, v in joules.items()}
    )


WITH = [run(number, kwh=1.5, joules=3.6e6, host_joules=1.8e6) for number in (1, 2)]
WITHOUT = [run(3, kwh=1.1, joules=3.9e6)]


def test_the_sentence_names_both_kinds_and_runs_without_energy_are_no_kind() -> None:
    (sentence,) = other_energy({"a": WITH, "b": WITHOUT})
    assert sentence.startswith(SENTENCE)
    assert other_energy({"a": WITH[:1], "b": WITH[1:]}) == other_energy({"a": WITH, "b": [run(3)]}) == []


def test_a_gate_refuses_kilowatt_hours_and_takes_the_joules_of_gpus() -> None:
    with pytest.raises(ValueError, match=r"--metric energy/kwh: kWh and CO2 include .* Next: give that metric"):
        check_sides({"baseline": WITH, "candidate": WITHOUT}, "energy/kwh")
    check_sides({"baseline": WITH, "candidate": WITHOUT}, "energy/joules")


def test_a_report_warns(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, SWEEP, "sqlite:///none.db", 3)
    for gpus, seed in ((1, 1), (1, 2), (2, 1)):
        folder = make_run(sweep, config(gpus=gpus, seed=seed), "sqlite:///none.db", fingerprint=CLOCKS)
        log = Journal(folder / run_folder.JOURNAL)
        log.metrics({"energy/kwh": 1.5, "energy/joules": 3.6e6} | ({"energy/host_joules": 1.8e6} if gpus == 1 else {}))
        log.close()
    store = FolderRuns([tmp_path])
    (warning,) = [words for words in report.make(store, [SWEEP], store.find([SWEEP])).warnings if "kWh" in words]
    assert SENTENCE.replace("(a)", "(gpus=1)").replace("(b)", "(gpus=2)") in warning
