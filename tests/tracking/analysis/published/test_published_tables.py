"""Reports of runs that say what a published table says hold that table, figure by figure; each report checks itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT
from tests.support.published_tables import import_dgx1, imported
from tests.support.studied import config, make_run, make_sweep
from tests.tracking.measure.kernels.traces import STREAM, event
from tracking.__main__ import main
from tracking.analysis import mlperf
from tracking.analysis.audit.audit import audit
from tracking.analysis.published import studies
from tracking.analysis.results import FolderRuns
from tracking.measure import kernels

URI = "sqlite:///none.db"


def trained(
    sweep: Path, minutes: float, epochs: int = 3, seed: int = 1, tags: Mapping[str, str] | None = None,
    of: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """A run `of` these options that reaches its target after so many minutes and epochs."""
    accuracies = (*[0.5] * (epochs - 1), 0.95)
    settings = config(seed=seed, **(of or {}))
    return make_run(sweep, settings, URI, 60 * minutes / epochs / 8, accuracies, eval_sec=0.0, tags=tags,
                    max_epochs=epochs)  # fmt: skip


def journaled(folder: Path, values: Mapping[str, float]) -> None:
    """Have a run say further figures, as it does at its end."""
    path = folder / "journal.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    path.write_text(path.read_text() + json.dumps(last | {"values": values}) + "\n")


def sweep_of(root: Path) -> Path:
    return make_sweep(root / "runs", "20260101-000000-published", URI, 1)


def reported(root: Path, *options: str) -> dict[str, Any]:
    """The JSON of a report on all runs below `root`, which its own check finds right."""
    command = ["report", str(root / "runs"), "--from-folders", "--runs-dir", str(root / "runs"), "--check"]
    assert main([*command, "--out", str(root / "out"), *options]) == 0
    report: dict[str, Any] = json.loads((root / "out" / "report.json").read_text())
    return report


def agrees(root: Path) -> bool:
    return main(["audit", str(root / "out"), "--runs-dir", str(root / "runs")]) == 0


def seen(root: Path, kind: str, *headings: str) -> str:
    """What the audit says when under each of these headings the last digit of the first own row is altered."""
    report = json.loads((root / "out" / "report.json").read_text())
    table = next(made for made in report["tables"] if made["kind"] == kind)
    row = next(row for row in table["rows"] if row[0].startswith("yours"))
    for heading in headings:
        place = table["columns"].index(heading)
        row[place] = f"{row[place][:-1]}{(int(row[place][-1]) + 1) % 10}"
    return "; ".join(audit(report, [root / "runs"]).differences)


def rows(report: dict[str, Any], kind: str) -> list[dict[str, str]]:
    return [
        {**dict(zip(made["columns"], row, strict=True)), "about": made["about"] or ""}
        for made in report["tables"]
        if made["kind"] == kind
        for row in made["rows"]
    ]


def figure(text: str) -> float:
    """The mean of a cell."""
    return float(re.split(r"[ %]", text.lstrip("≥≤ "))[0].replace(",", ""))


def test_the_dgx1_report(tmp_path: Path) -> None:
    """Every minute, epoch and time of its table, and the speed-ups that its text prints."""
    import_dgx1(tmp_path)
    there = {
        (row["about"].split()[0], row["gpus"]): row for row in rows(reported(tmp_path, "--by", "gpus"), "settings")
    }
    published = studies.read("dgx1_scaling.csv")
    assert len(there) == len(published)
    for row in published:
        own = there[studies.MODELS[row["workload"]], row["gpus"]]
        minutes, epochs = float(row["minutes_per_epoch"]), float(row["epochs"])
        assert figure(own["minutes an epoch"]) == pytest.approx(minutes, rel=1e-3)
        assert figure(own["epochs"]) == epochs
        assert figure(own["time to accuracy (s)"]) == pytest.approx(60 * minutes * epochs, rel=1e-3)
        if row["printed_speedup"]:  # Resnet-50's and GNMT's on four differ from those of its own table.
            assert figure(own["speed-up"]) == pytest.approx(float(row["printed_speedup"]), rel=0.02)


def test_the_c4140_report(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    published = studies.read("resnet50_c4140.csv")
    for row in published:
        of = {"model": "resnet50", "gpus": 4, "nodes": int(row["nodes"])}
        trained(sweep, 600 / float(row["speedup"]), int(row["epochs_to_accuracy"]), of=of)
    report = reported(tmp_path, "--by", "nodes", "--reference", "c4140")
    there = rows(report, "nodes")
    assert [row["nodes"] for row in there] == [row["nodes"] for row in published]
    for row in there:
        for quantity in ("speed-up", "efficiency (1 is ideal)", "epochs to the target"):
            assert figure(row[f"{quantity}, yours"]) == pytest.approx(figure(row[f"{quantity}, published"]), rel=0.01)
    assert [figure(row["speed-up, published"]) for row in there] == [float(row["speedup"]) for row in published]
    headings = ("efficiency (1 is ideal), yours", "epochs to the target, yours")
    said = seen(tmp_path, "nodes", *headings)
    assert all(f"{heading}: the report has" in said for heading in headings)
    picture = tmp_path / "out" / "report-1-nodes-beside-published.json"
    content = json.loads(picture.read_text())
    own = next(line for line in content["panels"][0]["lines"] if line["name"] == "yours")
    own["y"][1] *= 1.01
    picture.write_text(json.dumps(content))
    assert not agrees(tmp_path)


def test_the_study_of_p2_and_p3(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    published = studies.read("fashion_mnist_p2_p3.csv")
    for row in published:
        tags = {"env.gpu": row["gpu"], "env.cuda": row["cuda"]}
        minutes = float(row["minutes"] or 62.7)  # of CUDA 8 it prints none; both of its speed-ups give this one
        trained(sweep, minutes, tags=tags, of={"price": float(row["usd_per_hour"])})
    options = ["--by", "env.gpu,env.cuda", "--over", "env.gpu=K80,env.cuda=8", "--reference", "fashion_mnist"]
    report = reported(tmp_path, *options)
    costs = {(row["env.gpu"], row["env.cuda"]): row for row in rows(report, "settings")}
    scores = {row["setting"]: figure(row["score"]) for row in rows(report, "over")}
    assert [round(figure(costs[row["gpu"], row["cuda"]]["cost to accuracy (USD)"]), 2) for row in published] == [
        0.94, 0.77, 0.65,
    ]  # fmt: skip
    for row in published:
        score = scores[f"env.gpu={row['gpu']} env.cuda={row['cuda']}"]
        assert round(score, 1) == float(row["speedup_over_p2_cuda8"])
    beside = [row for row in rows(report, "beside") if "V100" in row["hardware"] and not row[""].startswith("yours")]
    assert figure(beside[0]["time to accuracy (min)"]) == 12.8


# Each GPU's best, worst and other stacks; the worst if the study names no other.
GRID = [("384", "9.0"), ("410", "9.0"), ("410", "10.0"), ("418", "9.0"), ("418", "10.0")]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_study_of_stacks(tmp_path: Path) -> None:
    """Spreads of the means of each GPU, its best and its worst stack, and where there is no conclusion."""
    sweep = sweep_of(tmp_path)
    published = studies.read("maskrcnn_stacks.csv")
    for row in published:
        worst = {("384", "9.0"): 1.0} if row["worst_driver"] == "384" else {("410", "9.0"): 1.0}
        for driver, cuda in GRID[1:] if row["gpu"] == "T4" else GRID:  # Driver 384 does not support the T4.
            others = {"K80": 1.0, "T4": 0.0}.get(row["gpu"], 0.5)  # of the spread; the study names no worst of the K80
            above = {("418", "10.0"): 0.0, **worst}.get((driver, cuda), others) * float(row["spread_percent"]) / 100
            noise = 0.04 if row["gpu"] == "M60" else 0.001
            for seed, part in enumerate((-1, 0, 1, -0.5, 0.5) if row["best_driver"] else (-1, 0, 1), 1):
                tags = {"env.gpu": row["gpu"], "env.driver": driver, "env.cuda": cuda}
                trained(sweep, 100 * (1 + above) * (1 + part * noise), 50, seed, tags, {"model": "maskrcnn"})
    report = reported(tmp_path, "--by", "env.driver,env.cuda,env.gpu", "--reference", "stacks")
    gaps = {row["on"].removeprefix("env.gpu="): row for row in rows(report, "gaps")}
    verdicts = {made["title"].rpartition("env.gpu=")[2].partition(":")[0]: made["note"]
                for made in report["tables"] if made["kind"] == "stacks"}  # fmt: skip
    for row in published:
        gap = gaps[row["gpu"]]
        assert figure(gap["gap of means"]) == pytest.approx(float(row["spread_percent"]), abs=0.05)
        for end, mean in (("best", "smallest mean"), ("worst", "largest mean")):
            if row[f"{end}_driver"]:
                cuda = row[f"{end}_cuda"]
                assert gap[mean] == f"env.driver={row[f'{end}_driver']} env.cuda={cuda}"
        clear = bool(row["best_driver"])
        assert ("the best stack is env.driver=418 env.cuda=10.0" in verdicts[row["gpu"]]) == clear
        assert ("which may be noise" in verdicts[row["gpu"]]) != clear
    assert figure(gaps["M60"]["gap of single runs"]) > 2 * figure(gaps["M60"]["gap of means"])
    missing = {tuple(row.values())[:3] for row in rows(report, "missing")}
    assert ("384", "9.0", "T4") in missing
    assert max(figure(gap["gap of means"]) for gap in gaps.values()) == 15  # as its text prints


def test_the_frameworks_and_the_kernels_that_they_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(tmp_path)
    published = studies.read("resnet50_frameworks.csv")
    folders = []
    for row in published:
        epochs, name = int(row["epochs"]), f"{row['framework']} {row['version']}"
        tags = {"env.framework": name, "env.cudnn": row["cudnn"]}
        minutes = epochs * float(row["minutes_per_epoch"])
        folders.append(trained(sweep, minutes, epochs, tags=tags, of={"model": "resnet50", "gpus": 4}))
        shared = int(row["common_kernels_percent"]) / int(row["num_common_kernels"])
        times = {f"cudnn::shared_{place}": shared for place in range(int(row["num_common_kernels"]))}
        times[f"own_{row['framework']}"] = 100 - int(row["common_kernels_percent"])
        profiled(folders[-1], times)
    report = reported(tmp_path, "--by", "env.framework", "--reference", "frameworks")
    there = {row["env.framework"]: row for row in rows(report, "settings")}
    for row in published:
        own = there[f"{row['framework']} {row['version']}"]
        assert (figure(own["minutes an epoch"]), figure(own["epochs"])) == (
            float(row["minutes_per_epoch"]), float(row["epochs"]),
        )  # fmt: skip
    capsys.readouterr()
    assert main(["diff", *map(str, folders), "--kernels", "--from-folders", "--runs-dir", str(tmp_path / "runs")]) == 0
    said = "8 kernels are in both, with 45% of the kernels' time in A and 34% in B"
    assert said in " ".join(capsys.readouterr().out.split())


def profiled(folder: Path, times: Mapping[str, float]) -> None:
    """A profile of a step of these kernels, one after the other."""
    ends = [*accumulate(times.values(), initial=0.0)]
    events = [
        event("kernel", name, begin, dur, STREAM) for begin, (name, dur) in zip(ends, times.items(), strict=False)
    ]
    summary, _ = kernels.program_trace.summary_of({"traceEvents": events})
    kernels.write(folder, kernels.Profile(asked_steps=1, num_steps=1, summaries={"0": summary.plain()}))


def test_the_pairs_of_batches(tmp_path: Path) -> None:
    """A larger batch takes as many times as long as in each pair that names its batches; the others stand beside."""
    sweep = sweep_of(tmp_path)
    published = studies.read("dell_mlperf.csv")
    for row in published:
        if row["batch_size"]:
            tags = {"env.node": " ".join(filter(None, [row["system"], row["framework"]]))}
            of = {"model": row["workload"], "batch_size": int(row["batch_size"]), "gpus": 4}
            trained(sweep, float(row["seconds"]) / 60, tags=tags, of=of)
    report = reported(tmp_path, "--by", "batch_size,env.node", "--reference", "dell")
    there = rows(report, "batch-pairs")
    factors = {
        (row["about"].split()[0], own, row["batch"], row["larger batch"]): figure(row["times as long"])
        for own in (True, False)
        for row in there
        if row[""].startswith("yours") is own
    }
    assert len([row for row in there if not row[""].startswith("yours")]) == 7
    for (model, own, small, large), factor in factors.items():
        assert factors[model, not own, small, large] == pytest.approx(factor, rel=2e-3)
    shown = {cell for row in rows(report, "beside") for cell in row.values()}
    assert {f"{float(row['seconds']) / 60:,.5g}" for row in published} <= shown
    picture = tmp_path / "out" / "report-1-batches.json"
    content = json.loads(picture.read_text())
    assert {panel["y"] for panel in content["panels"]} == {"time of an epoch (s)", "time to accuracy (s)"}
    assert seen(tmp_path, "batch-pairs", "larger batch")  # by which the check knows a row
    headings = ("its time to accuracy (min)", "times as long")
    said = seen(tmp_path, "batch-pairs", *headings)
    assert all(f"{heading}: the report has" in said for heading in headings)
    content["panels"][0]["lines"][0]["y"][0] *= 1.01
    picture.write_text(json.dumps(content))
    assert not agrees(tmp_path)


def test_more_nodes_read_more(tmp_path: Path) -> None:
    """66 % and 100 MB/s more with twice as many nodes."""
    sweep, least = sweep_of(tmp_path), 100 / 0.66
    for nodes in (1, 2):
        of = {"model": "resnet50", "gpus": 4, "nodes": nodes}
        journaled(trained(sweep, 60, of=of), {"traffic/disk_read_peak_megabytes_per_sec": least + 100 * (nodes - 1)})
    first, second = rows(reported(tmp_path, "--by", "nodes"), "traffic")
    growth = figure(second["storage peak (MB/s)"]) - figure(first["storage peak (MB/s)"])
    assert (growth, second["storage peak (MB/s), doubling"]) == (pytest.approx(100, abs=0.2), "1.66")


@pytest.mark.parametrize(("model", "gain", "saved"), [("resnet50", 8, 50), ("transformer", 25, 33)])
def test_the_gain_of_a_bridge_between_gpus(tmp_path: Path, model: str, gain: int, saved: int) -> None:
    sweep, with_bridge = sweep_of(tmp_path), 100 * saved / gain
    for topology, minutes in (("PHB", with_bridge + saved), ("NV2", with_bridge)):
        tags = {"env.topology": topology, "env.gpu": "Quadro GV100"}
        trained(sweep, minutes, 50, tags=tags, of={"gpus": 2, "model": model})
    report = reported(tmp_path, "--by", "env.topology", "--over", "env.topology=PHB", "--reference", "dell")
    scores = {row["setting"]: figure(row["score"]) for row in rows(report, "over")}
    assert scores["env.topology=NV2"] == pytest.approx(1 + gain / 100, abs=1e-3)
    times = {row["env.topology"]: figure(row["time to accuracy (s)"]) / 60 for row in rows(report, "settings")}
    assert times["PHB"] - times["NV2"] == pytest.approx(saved, abs=1)
    printed = {(row["workload"], row["value"]) for row in rows(report, "published")}
    assert {(model, str(gain)), (model, str(saved)), ("all", "up to 40")} <= printed


def test_what_half_precision_and_other_forms_of_a_gpu_bring(tmp_path: Path) -> None:
    """330 minutes are 70 % of a training; SXM2 over PCIe is 5 %."""
    sweep = sweep_of(tmp_path)
    whole = 330 / 0.7
    for precision, minutes in (("fp32", whole), ("fp16", whole - 330)):
        for gpu, factor in (("Tesla V100-PCIE-16GB", 1.0), ("Tesla V100-SXM2-16GB", 1.05)):
            of = {"precision": precision, "model": "resnet50"}
            folder = trained(sweep, minutes / factor, 50, tags={"env.gpu": gpu}, of=of)
            journaled(folder, {"memory/peak_allocated_bytes": 8e9})
    report = reported(tmp_path, "--by", "precision,env.gpu", "--over", "env.gpu=Tesla V100-PCIE-16GB")
    gains = {row["setting"]: figure(row["times less time than fp32"]) for row in rows(report, "gains")}
    assert gains["precision=fp16 env.gpu=Tesla V100-PCIE-16GB"] == pytest.approx(3.33, abs=0.01)  # up to 330 %
    scores = {row["setting"]: row for row in rows(report, "over")}
    sxm2 = scores["precision=fp32 env.gpu=Tesla V100-SXM2-16GB"]
    assert (sxm2["base"], figure(sxm2["score"])) == ("precision=fp32 env.gpu=Tesla V100-PCIE-16GB", 1.05)


def of_v05(benchmark: str, value: Any) -> str:
    """A log as v0.5 writes it: an epoch of a minute to this value."""
    said = [
        (0, "run_start"), (0, "train_epoch: 0"), (60, "eval_start"),
        (61, f"eval_accuracy: {json.dumps({'epoch': 0, 'value': value})}"), (61, "eval_stop"),
        (62, 'run_stop: {"success": true}'),
    ]  # fmt: skip
    lines = [f":::MLPv0.5.0 {benchmark} {1541710500 + sec}.0 (train.py:1) {words}" for sec, words in said]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "row", studies.read("mlperf_v05_targets.csv"), ids=lambda row: f"{row['workload']} {row['metric']}"
)
def test_mlperfs_targets_and_numbers_of_runs(tmp_path: Path, row: dict[str, str]) -> None:
    """A log of v0.5 that reaches the target becomes a run to it, and MLPerf's score asks for so many of them."""
    benchmark = {"resnet50": "resnet"}.get(row["workload"], row["workload"])
    target = float(row["target"])
    text = of_v05(benchmark, {"BBOX": 0.377, "SEGM": 0.339} if benchmark == "maskrcnn" else target)
    imported(tmp_path, benchmark, text, gpus=1)
    (run,) = FolderRuns([tmp_path / "runs"]).find(["timetrial"])
    targets = dict(zip(run.params["target_metric"].split(","), run.params["target_value"].split(","), strict=True))
    assert str(target) in targets.values() or f"{target:g}" in targets.values()
    assert run.metrics["target_reached"] == 1
    (score,) = mlperf.scores([("run", text, {})])
    assert score.num_missing == int(row["repeats"]) - 1


def test_records_of_our_workloads_stand_beside_runs(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    published = studies.reference_rows(studies.NAMES)
    models = {row.model for row in published} & {path.stem for path in (ROOT / "conf/model").glob("*.yaml")}
    for model in sorted(models):
        trained(sweep, 1.0, of={"model": model})
    report = reported(tmp_path, "--reference", ",".join(studies.NAMES), "--by", "precision")
    shown = {(row["about"].partition(" ")[0], cell) for row in rows(report, "beside") for cell in row.values()}
    for record in published:
        if record.model in models and record.model != "minigo":
            value = next(iter(record.metrics.values()))
            assert any(model == record.model and cell and _is(cell, value) for model, cell in shown), record


def test_minigos_published_rows_have_board_and_target_and_stand_beside_no_run(tmp_path: Path) -> None:
    trained(sweep_of(tmp_path), 1.0, of={"model": "minigo"})
    report = reported(tmp_path, "--reference", "mlperf", "--by", "precision")
    (table,) = (table for table in report["tables"] if "published figures of other tasks" in table["title"])
    shown = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    minutes = [row["time to accuracy (min)"] for row in shown]
    assert minutes == ["", "27.39", "77.95", "299.7", "161.6", "174.6"]
    tasks = [re.findall(r"v\d\.\d|\d+x\d+: \d+ %", row[""]) for row in shown]
    assert tasks == [
        ["v0.5", "9x9: 40 %"], *[["v0.6", "9x9: 50 %"]] * 2, ["v0.7", "19x19: 50 %"], *[["v2.1", "19x19: 50 %"]] * 2,
    ]  # fmt: skip
    assert not rows(report, "beside")


def _is(cell: str, value: float) -> bool:
    try:
        number = figure(cell)
    except ValueError:
        return False
    return any(number == pytest.approx(value / scale, rel=1e-3) for scale in (1, 60))
