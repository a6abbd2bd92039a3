"""Tables that answer what is asked of all workloads: which fits in a time, over what base, in how many nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fingerprints import fingerprint, torch_module
from tests.support.published_tables import import_dgx1
from tests.support.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.compare import Estimate
from tracking.analysis.report.within import time_text
from tracking.analysis.statistics import proven_share
from tracking.measure.bottleneck import explain
from tracking.record import run_folder

URI = "sqlite:///none.db"


def table(report: dict[str, Any], kind: str) -> list[dict[str, str]]:
    (only,) = [made for made in report["tables"] if made["kind"] == kind]
    return [dict(zip(only["columns"], row, strict=True)) for row in only["rows"]]


def reported(root: Path, *options: str) -> dict[str, Any]:
    """The JSON of a report on all runs below `root`, which its own check finds right."""
    command = ["report", str(root / "runs"), "--from-folders", "--runs-dir", str(root / "runs"), "--check"]
    assert main([*command, "--out", str(root / "out"), *options]) == 0
    report: dict[str, Any] = json.loads((root / "out" / "report.json").read_text())
    return report


@pytest.fixture(scope="module")
def dgx1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a report on the DGX-1's published trainings."""
    root = tmp_path_factory.mktemp("dgx1")
    import_dgx1(root)
    reported(root, "--by", "gpus", "--within", "8h,2h", "--over", "gpus=1")
    return root / "out"


@pytest.fixture
def of_dgx1(dgx1: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dgx1 / "report.json").read_text())
    return content


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One GPU takes 30 to 33 hours, two 15 to 17, four 8; the fourth of four is stopped after 2 h, the fifth misses."""
    root = tmp_path_factory.mktemp("within")
    sweep = make_sweep(root / "runs", "20260101-000000-vgg-0001", URI, 11)
    for gpus, hours, nodes in ((1, 30.0, 1), (2, 15.0, 1), (4, 8.0, 1), (2, 9.0, 2)):
        for seed in (1, 2, 3):
            step_sec = (hours + seed / 10) * 3600 / 24
            asked = config(gpus=gpus, seed=seed, price=2.0 * gpus if nodes == 1 else None, nodes=nodes)
            make_run(sweep, asked, URI, step_sec=step_sec, eval_sec=0.0, tags={"env.gpu": f"GPU {gpus}"})
    make_run(sweep, config(gpus=4, seed=4, price=8.0), URI, step_sec=450.0, failure="timeout", failed_after=(0.1, 0.2),
             tags={"env.gpu": "GPU 4"})  # fmt: skip
    return root


def test_three_of_three_prove_37_percent() -> None:
    assert proven_share(3, 3) == pytest.approx(0.05 ** (1 / 3))
    assert (proven_share(0, 3), round(proven_share(9, 10), 2)) == (0.0, 0.61)


def test_the_fewest_devices_and_the_cheapest_setting_that_are_in_time(made: Path) -> None:
    report = reported(made, "--by", "gpus,nodes", "--within", "20h,9h,90min")
    day, working_day, film = table(report, "within")
    assert (day["fewest devices"], day["devices"], day["time to accuracy"]) == ("gpus=2 nodes=1", "2", "15:12 ± 0:03 h")
    assert day["runs in time"] == "3 of 3, at least 37 %"
    assert (day["cheapest"], day["its cost (USD)"]) == ("gpus=2 nodes=1", "60.80 ± 0.23")
    # The stopped run on four GPUs does not count for nine hours; the mean is a lower bound.
    assert (working_day["fewest devices"], working_day["time to accuracy"]) == ("gpus=4 nodes=1", "≥ 6:39 ± 1:33 h")
    assert working_day["runs in time"] == "3 of 3, at least 37 %"
    assert film["fewest devices"] == "none; nearest: gpus=4 nodes=1"
    assert (film["runs in time"], film["cheapest"]) == ("0 of 4, at least 0 %", "")


@pytest.mark.parametrize("limit", ["8", "0h", "8 h", "nanh"])
def test_a_limit_that_is_no_time_is_refused(made: Path, capsys: pytest.CaptureFixture[str], limit: str) -> None:
    runs = ["report", str(made / "runs"), "--from-folders", "--runs-dir", str(made / "runs")]
    assert main([*runs, "--out", str(made / "no"), "--within", limit]) == 2
    allowed = "Allowed: numbers above 0 with a unit (s, min, h or d), as in 8h,4h,90min"
    assert f"--within {limit}: not a time. {allowed}" in capsys.readouterr().err


def test_scores_are_over_the_base_that_is_named(made: Path) -> None:
    report = reported(made, "--by", "gpus,nodes", "--over", "env.gpu=GPU 1,gpus=1")
    scores = {row["setting"]: row for row in table(report, "over")}
    assert report["by"] == ["gpus", "nodes", "env.gpu"]
    two = scores["gpus=2 nodes=1 env.gpu=GPU 2"]
    assert (two["base"], two["score"]) == ("gpus=1 nodes=1 env.gpu=GPU 1", "1.9868 ± 0.0084")
    assert scores["gpus=1 nodes=1 env.gpu=GPU 1"]["score"] == "1.000"
    assert scores["gpus=2 nodes=2 env.gpu=GPU 2"]["base"] == "gpus=1 nodes=1 env.gpu=GPU 1"


def test_a_base_that_no_run_is_of_is_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = ["report", str(made / "runs"), "--from-folders", "--runs-dir", str(made / "runs")]
    assert main([*runs, "--out", str(made / "no"), "--over", "gpus=3"]) == 2
    assert "--over gpus=3: no run has these values. Allowed: gpus=1; gpus=2; gpus=4" in capsys.readouterr().err
    assert main([*runs, "--out", str(made / "no"), "--over", "gpus"]) == 2
    assert "not an axis and value" in capsys.readouterr().err


def test_the_same_devices_in_more_nodes_stand_in_one_row(made: Path) -> None:
    (row,) = table(reported(made, "--by", "gpus,nodes"), "shapes")
    assert row["devices"] == "4"
    assert row["time to accuracy (s) on 1 node"].startswith("≥ ")
    assert row["time to accuracy (s) on 2 nodes"] == "33,120 ± 208"
    assert row["gain on 2 nodes"].startswith("≥ 0.72")


def test_systems_stand_beside_each_other(tmp_path: Path) -> None:
    """Four H200s at one socket, the same at both, and four PCIe cards."""
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0002", URI, 4)
    one_socket, both, cards = (
        fingerprint(name, [0, 1], torch_module()) for name in ("h200-x4", "h200-x4", "handmade-pcie")
    )
    for gpu in cards["gpus"]:
        gpu["name"] = "Tesla V100-PCIE-16GB"
    both["topology"]["cpu_affinity"] |= {"GPU2": "64-127", "GPU3": "64-127"}
    for node, facts in (("k", one_socket), ("k", one_socket), ("m", both), ("p", cards)):
        make_run(sweep, config(gpus=2, seed=ord(node)), URI, fingerprint=facts, tags={"env.node": node})
    rows = table(reported(tmp_path, "--by", "env.node"), "systems")
    by_gpus = {(row["GPUs"], row["GPUs by CPU affinity"]): row for row in rows}
    assert [row["system"] for row in rows] == ["A", "B", "C"]
    k, m = by_gpus["4 x NVIDIA H200", "4"], by_gpus["4 x NVIDIA H200", "2+2"]
    assert (k["runs"], m["runs"], k["slowest pair"], k["network cards"]) == ("2", "1", "NV18", "")
    assert (k["memory of a GPU (GiB)"], k["power limit (W)"]) == ("140.4", "700")
    (other,) = [row for row in rows if row not in (k, m)]
    assert (other["slowest pair"], other["GPUs by CPU affinity"], other["network cards"]) == ("SYS", "", "2, PIX")
    assert (other["GPUs"], other["form factor"]) == ("4 x Tesla V100-PCIE-16GB", "PCIe")


def test_a_machine_at_two_power_limits_is_two_systems(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0009", URI, 3)
    for seed, watts in enumerate((700, 350, 350), 1):
        facts = fingerprint("h200-x4", [0, 1], torch_module())
        for gpu in facts["gpus"]:
            gpu["power_limit_watts"] = watts
        make_run(sweep, config(gpus=2, seed=seed), URI, fingerprint=facts, tags={"env.node": "k"})
    rows = table(reported(tmp_path), "systems")
    assert sorted((row["power limit (W)"], row["runs"]) for row in rows) == [("350", "2"), ("700", "1")]


def test_batches_that_do_not_fit_are_marked(tmp_path: Path) -> None:
    """As +study=batches ends where the memory does, with the published pairs beside it."""
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-resnet50-0003", URI, 4)
    for seed in (1, 2):
        make_run(sweep, config(model="resnet50", batch_size=256, seed=seed), URI, step_sec=0.1 + seed / 100)
        make_run(sweep, config(model="resnet50", batch_size=512, seed=seed), URI, failure="oom")
    report = reported(tmp_path, "--by", "batch_size", "--reference", "dell")
    rows = {row["batch_size"]: row for row in table(report, "settings")}
    assert (rows["256"]["n"], rows["512"]["n"]) == ("2 of 2", "0 of 2; 2 out of memory")
    assert any("TensorFlow" in row[""] for row in table(report, "beside"))
    picture = json.loads((tmp_path / "out" / "report-1-batches.json").read_text())
    epoch, time, full = picture["panels"]
    assert (epoch["lines"][0]["x"], time["lines"][0]["x"]) == ([256], [256])
    (line,) = full["lines"]
    assert (full["y"], line["x"], line["y"]) == ("runs out of memory (share)", [512], [1])


def test_every_workload_of_the_dgx1_report_is_told_what_fits_in_a_working_day(of_dgx1: dict[str, Any]) -> None:
    rows = {(row["workload"].split()[0], row["within"]): row for row in table(of_dgx1, "within")}
    assert len(rows) == 12
    resnet = rows["resnet50", "8h"]
    assert (resnet["fewest devices"], resnet["time to accuracy"]) == ("gpus=4", "4:47 h")  # 4.56 minutes x 63 epochs
    assert resnet["runs in time"] == "1 of 1, at least 5 %"
    assert rows["resnet50", "2h"]["fewest devices"] == "none; nearest: gpus=8"
    assert rows["ncf", "2h"]["fewest devices"] == "gpus=1"
    assert rows["maskrcnn", "8h"]["fewest devices"] == "gpus=8"
    scores = {(row["workload"].split()[0], row["setting"]): row["score"] for row in table(of_dgx1, "over")}
    assert scores["gnmt", "gpus=8"] == "10.41"  # 39.98 x 5 / (6.4 x 3)
    assert scores["resnet50", "gpus=4"] == "4.683"


def test_one_picture_has_all_workloads_of_the_dgx1_report(dgx1: Path) -> None:
    picture = json.loads((dgx1 / "report-workloads.json").read_text())
    times, ups, efficiencies = picture["panels"]
    first = next(line for line in (dgx1 / "report.md").read_text().splitlines() if line.startswith("!["))
    assert first.endswith("(report-workloads.png)")  # before the tables, and those of each workload
    text = (dgx1 / "report.md").read_text()
    assert text.index("report-workloads.png") < text.index("settings ranked") < text.index("report-1-scaling.png")
    page = (dgx1 / "report.html").read_text()
    assert page.index("<figure>") < page.index("settings ranked</h2>")
    assert len(times["lines"]) == len(ups["lines"]) == len(efficiencies["lines"]) == 6
    (gnmt,) = [line for line in ups["lines"] if line["name"].startswith("gnmt")]
    assert gnmt["x"] == [1.0, 4.0, 8.0]
    assert gnmt["y"] == pytest.approx([1.0, 3.248, 10.411], rel=1e-3)


def test_utilisation_stands_over_devices(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0004", URI, 4)
    for gpus in (1, 2):
        for seed in (1, 2):
            explain(make_run(sweep, config(gpus=gpus, seed=seed), URI, step_sec=0.1 / gpus + seed / 100))
    reported(tmp_path, "--by", "gpus")
    (panel,) = json.loads((tmp_path / "out" / "report-busy.json").read_text())["panels"]
    assert (panel["y"], panel["lines"][0]["x"]) == ("GPU utilisation (%)", [1.0, 2.0])


def measured(folder: Path, **values: float) -> None:
    """Have a run say further figures, as it does at its end."""
    path = folder / run_folder.JOURNAL
    last = json.loads(path.read_text().splitlines()[-1])
    row = {"kind": "metrics", "time_ms": last["time_ms"], "clock_sec": last["clock_sec"], "values": values}
    path.write_text(path.read_text() + json.dumps(row) + "\n")


def test_a_precision_gains_memory_time_and_joules(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0005", URI, 4)
    for precision, factor in (("fp32", 1.0), ("fp16", 0.5)):
        for seed in (1, 2):
            asked = config(precision=precision, seed=seed)
            folder = make_run(sweep, asked, URI, step_sec=factor * (0.1 + seed / 100), eval_sec=0.0)
            measured(folder, **{"memory/peak_allocated_bytes": 8e9 * factor, "energy/to_accuracy_joules": 4e3 * factor})
    report = reported(tmp_path, "--by", "precision")
    rows = {row["setting"]: row for row in table(report, "gains")}
    half = rows["precision=fp16"]
    assert (half["peak memory (GB)"], half["times less memory than fp32"]) == ("4.000 ± 0.000", "2.000 ± 0.000")
    assert (half["times less time than fp32"][:4], half["times less energy than fp32"]) == ("2.00", "2.000 ± 0.000")
    assert not list((tmp_path / "out").glob("report-workloads.*"))
    (gap,) = table(report, "gaps")
    assert (gap["smallest mean"], gap["largest mean"]) == ("precision=fp16", "precision=fp32")
    assert (gap["gap of means"], gap["gap of single runs"]) == ("100.0 %", "118.2 %")


def test_many_trainings_are_weighed_against_a_quick_one(of_dgx1: dict[str, Any]) -> None:
    """Eight ResNet-50s on one GPU each take 22.4 h together; one after the other on eight GPUs, 18.5 h."""
    rows = {(row["workload"].split()[0], row["devices"]): row for row in table(of_dgx1, "jobs")}
    resnet, ncf = rows["resnet50", "8"], rows["ncf", "8"]
    up_to = "of up to N trainings, one job is first up to"
    assert (resnet["first"], resnet[up_to], resnet["jobs at once"][-1]) == ("one job", "any number", "h")
    assert (ncf["first"], ncf[up_to]) == ("jobs at once", "2")


def test_layouts_of_as_many_devices_have_rows_of_their_own(tmp_path: Path) -> None:
    """The speed-up over one device is 8 but for the noise, and a gap between these settings would be the speed-up."""
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0007", URI, 6)
    for gpus, nodes, step_sec in ((1, 1, 8.0), (8, 1, 1.0), (4, 2, 1.4)):
        for seed in (1, 2):
            asked = config(gpus=gpus, nodes=nodes, seed=seed)
            folder = make_run(sweep, asked, URI, step_sec=step_sec * (1 + seed / 100), eval_sec=0.0)
            measured(folder, **{"traffic/disk_read_total_megabytes": 100.0 * nodes})
    for seed in (1, 2):
        measured(make_run(sweep, config(gpus=4, seed=seed), URI, step_sec=2.0 + seed / 100, eval_sec=0.0),
                 **{"traffic/disk_read_total_megabytes": 70.0})  # fmt: skip
    report = reported(tmp_path, "--by", "gpus,nodes")
    jobs = {row["setting"]: row["first"] for row in table(report, "jobs")}
    assert jobs == {
        "gpus=4 nodes=1": "cannot be told", "gpus=8 nodes=1": "cannot be told", "gpus=4 nodes=2": "jobs at once",
    }  # fmt: skip
    assert {row["setting"] for row in table(report, "traffic")} == {"gpus=4"}
    assert not [made for made in report["tables"] if made["kind"] == "gaps"]


def test_traffic_of_several_devices_has_rows_of_their_own(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0008", URI, 4)
    for gpus, nodes in ((4, 1), (4, 2), (8, 1), (8, 2)):
        folder = make_run(sweep, config(gpus=gpus, nodes=nodes, seed=1), URI)
        measured(folder, **{"traffic/disk_read_total_megabytes": 100.0 * nodes})
    rows = table(reported(tmp_path, "--by", "gpus,nodes"), "traffic")
    assert [(row["setting"], row["nodes"]) for row in rows] == [
        ("gpus=4", "1"), ("gpus=4", "2"), ("gpus=8", "1"), ("gpus=8", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "error", "words"),
    [(10_800, 20, "3:00 h ± 20 s"), (10_800, 720, "3:00 ± 0:12 h"), (90, 5, "90.0 ± 5.0 s")],
)
def test_an_error_of_seconds_is_said_in_seconds(seconds: float, error: float, words: str) -> None:
    assert time_text(Estimate(seconds, error, 3)) == words


def test_traffic_is_summed_over_nodes_with_its_growth(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "runs", "20260101-000000-vgg-0006", URI, 2)
    for nodes in (1, 4):
        folder = make_run(sweep, config(gpus=1, nodes=nodes, seed=nodes), URI)
        own = {f"traffic/{place}disk_read_total_megabytes": 100.0 for place in ("", "b/", "c/", "d/")[:nodes]}
        measured(folder, **own, **{"traffic/network_receive_peak_megabytes_per_sec": 3.0 * nodes**2})
    first, four = table(reported(tmp_path, "--by", "nodes"), "traffic")
    assert (first["storage total (MB)"], four["storage total (MB)"]) == ("100.0", "400.0")
    assert (four["storage total (MB), doubling"], four["network peak (MB/s), doubling"]) == ("2.00", "4.00")
    assert first["storage total (MB), doubling"] == four["network total (MB)"] == ""
