"""The energy and the CO2 of a run, of its GPUs and its hosts; and the front of energy against time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conf.launch_options import InstanceConfig
from tests.support import studied
from tracking.__main__ import main
from tracking.analysis.audit import audit_folder
from tracking.measure.bottleneck import examine
from tracking.record import Journal, documents, node_records, run_folder

# An epoch takes 1.3 s. The target is reached 2.6 s after the clock's start, which is at 5 s.
EPOCHS: dict[str, Any] = {"accuracies": (0.5, 0.95, 0.97), "step_sec": 0.1}


def run(
    folder: Path,
    gpu: dict[str, float],
    grams: float | None = None,
    nodes: int = 1,
    jobs_at_once: int = 1,
    **options: Any,
) -> Path:
    folder.mkdir(exist_ok=True)
    config = studied.config(nodes=nodes, gpus=1 if gpu else 0)
    config.instance = InstanceConfig("dgx", carbon_g_per_kwh=grams)
    config.sweep.jobs_at_once = jobs_at_once
    made = studied.make_run(folder, config, "sqlite:///none.db", **EPOCHS, **options)
    result = documents.read_json(made / run_folder.RESULT)
    documents.write_json(made / run_folder.RESULT, result | {"metrics": result["metrics"] | gpu})
    return made


def host(folder: Path, watts: float, node: str = "", every: float = 1.0, until: float = 9.0) -> None:
    file = node_records.file_of(run_folder.JOURNAL, node) if node else run_folder.JOURNAL
    log, key = studied.Writer(folder / file, studied.START_MS), f"system/{node}/" if node else "system/"
    for place in range(round(until / every) + 1):
        log.add("metrics", place * every, values={f"{key}host_joules": watts * place * every})


def test_a_training_on_gpus_has_their_energy_and_its_hosts(tmp_path: Path) -> None:
    made = run(tmp_path, {"energy/joules": 720.0, "energy/to_accuracy_joules": 360.0}, grams=400.0)
    host(made, 100.0)
    figures = examine(made).metrics
    assert figures["energy/host_joules"] == pytest.approx(390.0)  # 3.9 s at 100 W
    assert figures["energy/kwh"] == pytest.approx((720 + 390) / 3.6e6)
    assert figures["energy/to_accuracy_kwh"] == pytest.approx((360 + 260) / 3.6e6)
    assert figures["energy/co2_grams"] == pytest.approx(400 * (720 + 390) / 3.6e6)
    assert figures["energy/to_accuracy_co2_grams"] == pytest.approx(400 * (360 + 260) / 3.6e6)


def test_without_a_host_or_without_a_carbon_intensity_the_rest_is_there(tmp_path: Path) -> None:
    figures = examine(run(tmp_path, {"energy/joules": 720.0})).metrics
    assert {key: value for key, value in figures.items() if key.startswith("energy/")} == {
        "energy/kwh": pytest.approx(720 / 3.6e6)
    }


def test_on_cpus_it_is_that_of_the_hosts_of_all_nodes(tmp_path: Path) -> None:
    made = run(tmp_path, {}, nodes=2)
    host(made, 100.0)
    assert "energy/kwh" not in examine(made).metrics  # The other node's is not known.
    host(made, 200.0, "b")
    assert examine(made).metrics["energy/kwh"] == pytest.approx(3.9 * 300 / 3.6e6)


def test_samples_that_cover_too_little_and_gpus_that_tell_nothing_give_none(tmp_path: Path) -> None:
    made = run(tmp_path, {})
    host(made, 100.0, until=7.0)
    assert "energy/kwh" not in examine(made).metrics
    made = run(tmp_path / "gpu", {"energy/joules": 1.0})
    documents.write_json(made / run_folder.RESULT, {"status": "finished", "metrics": {}})
    host(made, 100.0)
    assert "energy/kwh" not in examine(made).metrics


def test_a_run_that_asks_for_co2_is_told_why_it_has_none(tmp_path: Path) -> None:
    def told(made: Path) -> list[str]:
        return [words for words in examine(made).bottleneck["missing"] if words.startswith("CO2, since")]

    asks, plain = run(tmp_path / "asks", {}, grams=400.0), run(tmp_path / "plain", {})
    assert [("RAPL" in words) for words in told(asks)] == [True]
    assert told(plain) == []
    host(asks, 100.0)
    assert told(asks) == []


def test_of_jobs_side_by_side_none_has_the_whole_hosts_energy(tmp_path: Path) -> None:
    made = run(tmp_path, {}, grams=400.0, jobs_at_once=2)
    host(made, 100.0)
    findings = examine(made)
    assert not any(key.startswith("energy/") for key in findings.metrics)
    assert [words for words in findings.bottleneck["missing"] if "jobs beside it" in words]


def test_energy_that_co_tenants_took_part_in_is_said_to_be_so(tmp_path: Path) -> None:
    made = run(tmp_path, {})
    host(made, 100.0)
    said = "energy without that of other processes, since the host's counter has theirs, too"
    assert said in examine(made, "cpu: 50 % of 2 cores (python)").bottleneck["missing"]
    assert said not in examine(made).bottleneck["missing"]


def test_a_resumed_run_has_another_reason_for_its_missing_co2(tmp_path: Path) -> None:
    made = run(tmp_path, {}, grams=400.0)
    lines = (made / run_folder.JOURNAL).read_text().splitlines(keepends=True)
    start = next(place for place, line in enumerate(lines) if '"init_start"' in line or '"run_start"' in line)
    resume = {"kind": "event", "key": "resume", "time_ms": 1, "clock_sec": 0.1, "values": {"epoch_num": 0}}
    (made / run_folder.JOURNAL).write_text("".join([*lines[:start], json.dumps(resume) + "\n", *lines[start:]]))
    host(made, 100.0)
    assert any(words.startswith("CO2, since the run was resumed") for words in examine(made).bottleneck["missing"])


@pytest.mark.slow
def test_a_report_draws_energy_against_time_and_the_audit_sees_what_is_altered(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 4)
    for gpus, step_sec, kwh in ((1, 0.1, 2.0), (2, 0.05, 3.0)):
        for seed in (1, 2):
            config = studied.config(gpus=gpus, seed=seed)
            made = studied.make_run(
                sweep, config, "sqlite:///none.db", step_sec + seed / 100, fingerprint=studied.CLOCKS
            )
            log = Journal(made / run_folder.JOURNAL)
            log.metrics({"energy/kwh": kwh + 1, "energy/to_accuracy_kwh": kwh + seed / 10})
            log.close()
    out = tmp_path / "out"
    words = ["report", studied.SWEEP, "--from-folders", "--runs-dir", str(tmp_path), "--out", str(out), "--check"]
    assert main(words) == 0
    path = out / "report-1-energy.json"
    picture = json.loads(path.read_text())
    (panel,) = picture["panels"]
    assert panel["y"] == "energy to accuracy (kWh)"
    assert sorted(line["y"][0] for line in panel["lines"]) == pytest.approx([2.15, 3.15])
    path.write_text(path.read_text().replace("2.15", "2.05"))
    assert any("energy" in words for words in audit_folder(out, [tmp_path]).differences)
