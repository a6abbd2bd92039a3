"""A run's figures and limits as its summary has them, and as its audit works them out, of whatever times it took."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.studied import Writer, config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.audit import audit_folder
from tracking.analysis.audit.journals import PREFIX, JournalFigures
from tracking.analysis.report import page, report
from tracking.analysis.results import FolderRuns
from tracking.base import quantities
from tracking.jobs.plan import run_setup
from tracking.measure import bottleneck
from tracking.measure.training import clock, throughput
from tracking.record import documents, run_folder
from tracking.record.run_folder import Result, RunInfo

# Coarse, so that many are equal or 0 and shares lie where a rounding turns.
times = st.sampled_from([0.0, 1e-4, 0.01, 0.05, 0.125, 0.3, 1.0, 7.7]) | st.integers(0, 30_000).map(lambda ms: ms / 1e3)
percents = st.sampled_from([0.0, 12.5, 33.33, 50.0, 100.0]) | st.integers(0, 100).map(float)
KINDS = ("window", "window", "window", "eval", "checkpoint", "sample")


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[str, list[float]]]:
    """What happens within the epochs of a run, in order, each with the random numbers that it needs."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=3, max_size=12))
    return [(kind, [draw(percents if kind == "sample" else times) for _ in range(9)]) for kind in kinds]


def write(folder: Path, ranks: int, gpus: int, epochs: Sequence[list[tuple[str, list[float]]]]) -> None:
    """The journal of a run of these epochs, and its end."""
    asked = config(gpus=gpus, cpu_processes=ranks)
    documents.write_json(folder / run_folder.RUN, RunInfo("run", "studies", "", created_ms=0))
    run_folder.write_config(folder, asked)
    log, numbers, now = Writer(folder / run_folder.JOURNAL, 0), count(1), 5.0
    params = run_setup.params(asked) | {"max_epochs": len(epochs)}
    log.add("params", 0.0, values=params)
    log.add("tags", 0.0, values={"env.gpu": "A GPU" if gpus else "none", "git.commit": "c1"})
    log.event("init_start", 1.0, since_command_sec=0.5)
    log.event("run_start", now)
    for epoch, own in enumerate(epochs, 1):
        log.event("epoch_start", now, epoch_num=epoch)
        section = 0
        for kind, values in own:
            start, now = now, now + values[0]
            if kind == "window":
                log.event("throughput_window", now, **window(next(numbers), epoch, section, ranks, values))
            elif kind == "sample":
                log.add("metrics", now, step=next(numbers), values=sensors(gpus, values))
            else:
                log.event(f"{kind}_start", start)
                if kind == "eval":
                    section += 1
                    accuracy = {"accuracy": min(1.0, values[1])}
                    log.event("eval_accuracy", now, epoch_num=epoch, step=epoch, metrics=accuracy)
                    evaluated = {f"eval/{name}": value for name, value in accuracy.items()}
                    log.add("metrics", now, step=next(numbers), values={**evaluated, "epoch": float(epoch)})
                log.event(f"{kind}_stop", now)
        log.event("epoch_stop", now, epoch_num=epoch)
        now += 0.25
    log.event("run_stop", now, status="success")
    finish(log, folder, now)


def window(step: int, epoch: int, section: int, ranks: int, values: Sequence[float]) -> dict[str, Any]:
    scaled = [1e3 * values[0] * share for share in (0.5, 0.25, 0.125, 0.125)]
    of_ranks = {
        "rank_exchange_ms": [values[1 + rank % 3] * 10 for rank in range(ranks)] if ranks > 1 else [],
        "rank_gc_ms": [values[4 + rank % 2] for rank in range(ranks)],
        "rank_update_ms": [values[6] * 20] * ranks,
    }
    timed = {"rank_ms": [1e3 * values[0]] * ranks, "rank_wait_ms": [values[7 + rank % 2] * 9 for rank in range(ranks)]}
    steps = {"step_ms": scaled, "wait_ms": scaled, "section": section}
    return {"step": step, "epoch_num": epoch, "samples": 64, **timed, **steps, **of_ranks}


def sensors(gpus: int, values: Sequence[float]) -> dict[str, float]:
    names = ("engine_activity", "sm_activity", "dram_bandwidth", "tensor_activity", "sm_clock", "power_throttled")
    shifted = {
        f"gpu_{gpu}_{name}_percentage": values[(place + gpu) % 9]
        for gpu in range(gpus)
        for place, name in enumerate(names)
    }
    cores = {"run_cpu_percentage": values[7], "neighbours_cpu_percentage": values[8]}
    return {quantities.SYSTEM + name: value for name, value in (shifted | cores).items()}


def finish(log: Writer, folder: Path, now: float) -> None:
    """The summary of a run that has ended, as a worker and a supervisor write it."""
    asked = run_folder.read_config(folder)
    events = [record for record in log.records if record.kind == "event"]
    windows = throughput.read_windows(events)
    figures = clock.summarize(events, asked.targets())
    figures |= {"world_size": float(asked.world_size())}
    if throughput.steady(windows) and throughput.total_sec(throughput.steady(windows)):
        figures |= throughput.summarize(windows, asked.world_size())
    log.add("metrics", now, step=0, values=figures)
    documents.write_json(folder / run_folder.RESULT, Result("finished", metrics=figures, targets=asked.targets()))
    bottleneck.explain(folder)


def read(folder: Path) -> tuple[Mapping[str, float], JournalFigures]:
    """A run's metrics as a report reads them, and the audit's own of its folder."""
    [run] = FolderRuns([folder.parent]).find([folder.name])
    return run.metrics, JournalFigures(folder)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 99))
@example(update_ms=2, percent=15)  # 0.018449999999999998 and 0.01845
def test_a_share_in_the_middle_of_two_digits_may_be_rounded_either_way(update_ms: int, percent: int) -> None:
    """A run whose clock is 1 s, with an eighth of it in training."""
    trained = ("window", [0.125, *[0.0] * 5, update_ms / 20, 0.0, 0.0])
    busy = ("sample", [0.0, *[0.0] * 6, float(percent), 0.0])
    with tempfile.TemporaryDirectory() as root:
        folder = run_folder.create(Path(root), "run")
        write(folder, 1, 0, [[busy, trained, busy, ("eval", [0.625] * 9)]])
        metrics, checked = read(folder)
        known = {key: value for key, value in metrics.items() if key.startswith(PREFIX)}
        assert "bottleneck/processor_fraction" in known
        assert {key: checked.value(key) for key in known} == known


def test_of_two_values_at_the_same_step_and_time_the_larger_one_counts(tmp_path: Path) -> None:
    folder = run_folder.create(tmp_path, "run")
    write(folder, 1, 0, [[("window", [0.5] * 9), ("window", [0.5] * 9), ("window", [0.5] * 9)]])
    log = Writer(folder / run_folder.JOURNAL, 0)
    for value in (2.0, 3.0, 1.0):
        log.add("metrics", 9.0, step=9, values={"energy/joules": value})
    metrics, checked = read(folder)
    assert metrics["energy/joules"] == checked.value("energy/joules") == 3.0


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 3), st.sampled_from([0, 1, 2, 8]),
    st.lists(st.lists(parts(), min_size=1, max_size=2), min_size=1, max_size=2),
)  # fmt: skip
def test_a_report_and_its_audit_agree_whatever_runs_took(
    ranks: int, gpus: int, runs: list[list[list[tuple[str, list[float]]]]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        for number, epochs in enumerate(runs):
            folder = run_folder.create(Path(root), f"run{number}")
            write(folder, ranks if not gpus else 1, gpus, epochs)
        assert differences(Path(root)) == []


def test_runs_that_all_missed_have_a_bound_beside_how_busy_they_were(tmp_path: Path) -> None:
    folder = run_folder.create(tmp_path, "run")
    write(folder, 1, 0, [[("sample", [0.5] * 9), ("window", [0.5] * 9), ("sample", [0.5] * 9)]])
    assert differences(tmp_path) == []


def test_evaluations_at_the_same_step_are_all_drawn_and_checked(tmp_path: Path) -> None:
    """Programs may count each epoch's steps anew; so do the journals of earlier versions."""
    folder = run_folder.create(tmp_path, "run")
    epoch = [("window", [0.5] * 9), ("window", [0.5] * 9), ("eval", [0.5, *[1.0] * 8])]
    write(folder, 1, 0, [epoch, epoch])
    log = Writer(folder / run_folder.JOURNAL, 0)
    for clock_sec, accuracy in ((7.0, 0.5), (8.0, 0.4), (9.0, 0.9)):
        log.add("metrics", clock_sec, step=3, values={"eval/accuracy": accuracy, "epoch": clock_sec - 6})
    assert differences(tmp_path) == []


def differences(root: Path) -> list[str]:
    """What the audit finds in the files of a report on the runs below a folder."""
    store = FolderRuns([root])
    with tempfile.TemporaryDirectory() as out:
        page.write(report.make(store, [str(root)], store.find([str(root)]), []), Path(out))
        return audit_folder(Path(out), [root]).differences


@pytest.mark.parametrize("num_runs", [2, 3, 4])
def test_curves_of_runs_without_a_target_are_of_the_run_with_the_median_rate(
    num_runs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make_sweep(tmp_path, "sweep", "sqlite:///none.db", num_runs)
    for seed in range(num_runs):
        make_run(sweep, config(seed=seed, targets={}), "", step_sec=0.1 + 0.03 * seed)
    words = ["--from-folders", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--check"]
    assert main(["report", "sweep", *words]) == 0, capsys.readouterr().err
    assert list(tmp_path.glob("out/report-*.png"))


def test_settings_that_are_thousands_of_times_apart_have_no_number_with_an_exponent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make_sweep(tmp_path, "sweep", "sqlite:///none.db", 6)
    for seed in range(3):
        for batch_size, step_sec in ((64, 0.001), (128, 9.0)):
            asked = config(seed=seed, batch_size=batch_size, price_per_gpu_hour=2.0)
            make_run(sweep, asked, "", step_sec=step_sec * (1 + 0.01 * seed), eval_sec=0.0)
    words = ["--from-folders", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--check"]
    code, told = main(["report", "sweep", *words]), capsys.readouterr()
    assert code == 0, told.err
    page = (tmp_path / "out/report.md").read_text()
    assert re.search(r"\d,\d{3} times as fast", page)
    assert not re.findall(r".*\de\+\d.*", page + told.out)
