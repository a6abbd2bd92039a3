"""Run folders as whole trainings leave them, made by hand in milliseconds: every event that the figures follow from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.launch_options import InstanceConfig
from conf.schema import ModelConfig, RunConfig
from tracking.jobs.node import outcome
from tracking.jobs.plan import run_setup
from tracking.measure.training import clock, throughput
from tracking.record import documents, evaluations, journal, run_folder
from tracking.record.journal import Record
from tracking.record.run_folder import Failure, Result, RunInfo

START_MS = 1_790_000_000_000
SWEEP = "20260101-000000-vgg-abcd"
CLOCKS = {"used": [{"uuid": "a"}], "gpus": [{"uuid": "a", "application_sm_clock_mhz": 1980}], "environment": {}}
# Seconds a step of one GPU's five seeds, of two GPUs' three, and of four GPUs' three that reached their target.
# An epoch is 8 steps and an evaluation of 0.5 s.
ONE, TWO, FOUR = (0.10, 0.11, 0.12, 0.13, 0.19), (0.05, 0.06, 0.07), (0.03, 0.035, 0.04)


def config(**changes: Any) -> RunConfig:
    """A VGG on digits on one GPU; `changes` are fields of RunConfig, or `precision`, `price`, `model`, `metrics` and
    `targets`, by value. As in runs of older versions, its metrics declare no direction."""
    model = ModelConfig(changes.pop("model", "vgg"), "trainers.models.vgg:VGG", 32)
    model.metrics = changes.pop("metrics", {"accuracy": [0.0, 1.0]})
    model.targets = {"digits": changes.pop("targets", {"accuracy": 0.9})}
    model.optimizer.lr = 1e-3
    run_config = RunConfig(model=model, gpus=changes.pop("gpus", 1))
    run_config.dataset.name = "digits"
    run_config.precision.name = changes.pop("precision", "fp32")
    run_config.precision.trainer = "32-true"
    run_config.stack.name = "native"
    run_config.instance = InstanceConfig("dgx", changes.pop("price", None))
    for key, value in changes.items():
        setattr(run_config, key, value)
    return run_config


class Writer:
    """Appends records of chosen times to a journal."""

    def __init__(self, path: Path, start_ms: int) -> None:
        self.records: list[Record] = []
        self._path = path
        self._start_ms = start_ms

    def add(self, kind: str, clock_sec: float, **fields: Any) -> None:
        record = Record(kind, self._start_ms + round(1000 * clock_sec), clock_sec, **fields)
        self.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: value for name, value in vars(record).items() if value is not None}) + "\n")

    def event(self, key: str, clock_sec: float, **values: Any) -> None:
        self.add("event", clock_sec, key=key, values=values)


def make_sweep(root: Path, name: str, uri: str, num_jobs: int) -> Path:
    folder = run_folder.create(root, name)
    documents.write_json(folder / run_folder.RUN, RunInfo(f"sweep {name}", "studies", uri, kind="sweep"))
    log = journal.Journal(folder / run_folder.JOURNAL)
    log.tags({"sweep": name})
    log.params({"num_jobs": num_jobs})
    log.metrics({"num_finished": float(num_jobs)})
    log.close()
    documents.write_json(folder / run_folder.RESULT, Result("finished"))
    return folder


def make_run(
    sweep: Path, asked: RunConfig, uri: str, step_sec: float = 0.1, accuracies: Sequence[float] = (0.5, 0.8, 0.95),
    eval_sec: float = 0.5, failure: str | None = None, tags: Mapping[str, str | None] | None = None,
    fingerprint: Mapping[str, Any] | None = None, steps: int = 4, start_ms: int = START_MS,
    max_epochs: int = 3, losses: Sequence[float] = (), failed_after: Sequence[float] = (),
    recorded: bool = True,
) -> Path:  # fmt: skip
    """A run with an epoch for each accuracy, of two windows of `steps` steps each; or a failed run.

    A failed run ends after epochs of the accuracies `failed_after`. With `recorded`, the launcher has noted the time by
    which it had not reached its target. The accuracies are those of the first target metric; further metrics follow in
    proportion to their targets. If the folder `sweep` is not a sweep's, the run is a single one. The run lacks tags
    that are None.
    """
    name = run_setup.run_name(asked)
    folder = run_folder.create(sweep, name)
    parent = {"sweep": sweep.name} if (sweep / run_folder.RUN).exists() else {}
    info = RunInfo(name, "studies", uri, parent=".." if parent else None, created_ms=start_ms)
    documents.write_json(folder / run_folder.RUN, info)
    run_folder.write_config(folder, asked)
    if fingerprint is not None:
        documents.write_json(folder / run_folder.FINGERPRINT, fingerprint)
    log = Writer(folder / run_folder.JOURNAL, start_ms)
    params = run_setup.params(asked) | {"max_epochs": max_epochs, "optimizer/learning_rate": asked.learning_rate()}
    log.add("params", 0.0, values=params)
    env = {"env.gpu": "NVIDIA H200", "env.gpu_count": str(asked.gpus), "env.driver": "580.1", "env.cuda": "13.0"}
    about = {"config_hash": asked.config_hash(), **parent, **run_setup.compared(asked)}
    about |= {"git.dirty": "false", "git.commit": "c1"}
    all_tags = {**about, **env, **(tags or {})}
    log.add("tags", 0.0, values={key: value for key, value in all_tags.items() if value is not None})
    log.event("init_start", 1.0, since_command_sec=0.5)
    log.add("event", 4.0, key="train_samples", value=2 * steps * asked.samples_per_step())
    if failure is None:
        _train(log, folder, asked, step_sec, accuracies, eval_sec, steps, max_epochs, losses)
        return folder
    _epochs(log, asked, step_sec, failed_after, eval_sec, steps, max_epochs, losses)
    if recorded and failure in outcome.GIVEN_UP:
        sec = log.records[-1].clock_sec - 5.0
        price = asked.instance.price_per_hour
        usd = {} if price is None else {"cost/usd": price / 3600 * sec}
        known = clock.censored([record for record in log.records if record.kind == "event"], asked.targets())
        log.add("metrics", 5.0 + sec, values=known | usd)
    status = "killed" if failure.startswith("signal") else "failed"
    ended = Failure(failure, f"it ended by {failure}", time_ms=start_ms + 6000)
    documents.write_json(folder / run_folder.RESULT, Result(status, failure=ended))
    return folder


def go_on(
    folder: Path, asked: RunConfig, start_ms: int, failure: str | None = None,
    accuracies: Sequence[float] = (0.5, 0.8, 0.95),
) -> None:  # fmt: skip
    """What a resumed run leaves from its second start on: a training to its end, or a failure."""
    log = Writer(folder / run_folder.JOURNAL, start_ms)
    if failure is None:
        _train(log, folder, asked, 0.1, accuracies, 0.5, 4, 3, ())
        return
    ended = Failure(failure, f"it ended by {failure}", time_ms=start_ms + 6000)
    documents.write_json(folder / run_folder.RESULT, Result("failed", failure=ended))


def _train(
    log: Writer, folder: Path, asked: RunConfig, step_sec: float, accuracies: Sequence[float], eval_sec: float,
    steps: int, max_epochs: int, losses: Sequence[float],
) -> None:  # fmt: skip
    now, step, windows = _epochs(log, asked, step_sec, accuracies, eval_sec, steps, max_epochs, losses)
    log.event("run_stop", now, status="success")
    _summarize(log, folder, asked, now, step, windows)


def _epochs(
    log: Writer, asked: RunConfig, step_sec: float, accuracies: Sequence[float], eval_sec: float, steps: int,
    max_epochs: int, losses: Sequence[float],
) -> tuple[float, int, list[throughput.Window]]:  # fmt: skip
    """From the start of the clock to the end of the last epoch; that time, the steps and their windows."""
    now, step, windows = 5.0, 0, []
    log.event("run_start", now, max_epochs=max_epochs, num_batches=2 * steps)
    targets = asked.targets() or {next(iter(asked.model.metrics), "accuracy"): 1.0}
    first = next(iter(targets.values()))
    for epoch, accuracy in enumerate(accuracies, 1):
        log.event("epoch_start", now, epoch_num=epoch)
        for _ in range(2):
            step += steps
            now += steps * step_sec
            ranks = asked.world_size()
            window = throughput.Window(
                step, epoch, steps * asked.samples_per_step(), (steps * step_sec,) * ranks, (0.0,) * ranks,
                (step_sec,) * steps, (0.0,) * steps,
            )  # fmt: skip
            windows.append(window)
            log.event("throughput_window", now, **throughput.event_values(window))
            live = {"train/loss": 1 / step, "throughput/samples_per_sec": window.samples_per_sec}
            log.add("metrics", now, step=step, values=live)
            system = {"cpu_utilization_percentage": 30.0 + epoch % 9}
            system |= {f"gpu_{gpu}_utilization_percentage": 90.0 + epoch % 9 for gpu in range(max(1, int(asked.gpus)))}
            rates = {"disk_read_megabytes_per_sec": 2.0, "network_receive_megabytes_per_sec": 0.5}
            values = {f"system/{key}": value for key, value in (system | rates).items()}
            log.add("metrics", now, step=len(windows), values=values)
        log.event("epoch_stop", now, epoch_num=epoch)
        log.event("eval_start", now, epoch_num=epoch)
        now += eval_sec
        values = {key: accuracy * target / first for key, target in targets.items()}
        log.event("eval_accuracy", now, epoch_num=epoch, step=step, metrics=values)
        evaluated = {f"eval/{key}": value for key, value in values.items()}
        loss = {"eval/loss": losses[epoch - 1]} if losses else {}
        log.add("metrics", now, step=step, values={**evaluated, "epoch": float(epoch), **loss})
        log.event("eval_stop", now, epoch_num=epoch)
    return now, step, windows


def _summarize(
    log: Writer, folder: Path, asked: RunConfig, now: float, step: int, windows: list[throughput.Window]
) -> None:
    events = [record for record in log.records if record.kind == "event"]
    times = clock.summarize(events, asked.targets())
    evaluated = [event.values["metrics"] for event in events if event.key == "eval_accuracy"]
    times |= evaluations.best(evaluated, list(asked.targets() or asked.model.metrics), asked.directions())
    metrics = times | throughput.summarize(windows, asked.world_size()) | {"world_size": float(asked.world_size())}
    if asked.instance.price_per_hour is not None:
        usd_per_sec = asked.instance.price_per_hour / 3600
        metrics["cost/usd"] = usd_per_sec * (now - 5.0)
        if "time/to_accuracy_sec" in times:
            metrics["cost/to_accuracy_usd"] = usd_per_sec * times["time/to_accuracy_sec"]
    rate = {"throughput/samples_per_sec": metrics["throughput/samples_per_sec"]}  # the one that has a curve
    log.add("metrics", now + 0.5, step=0, values={key: value for key, value in metrics.items() if key not in rate})
    log.add("metrics", now + 0.5, step=step, values=rate)
    documents.write_json(folder / run_folder.RESULT, Result("finished", metrics=metrics, targets=asked.targets()))


def measure_place(folder: Path) -> None:
    """Have a run say what its place under the roofline follows from: its FLOPs, its memory's traffic, its ceilings."""
    path = folder / run_folder.JOURNAL
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    start = next(row for row in rows if row.get("key") == "run_start")
    flops = {"key": "model_flops", "values": {"per_sample": 1e9, "num_devices": 1}}
    for number, row in enumerate(rows):
        if row["kind"] == "metrics" and any(key.startswith("system/") for key in row["values"]):
            row["values"]["system/gpu_0_dram_bandwidth_percentage"] = 40.0 + number % 7
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, start | flops]))
    copy = {"unit": "B/s", "median": 3e12, "counters": {"dram_bandwidth_percentage": 90.0}}
    documents.write_json(folder / "ceilings.json", {"ceilings": {"copy": copy}, "environment": {}})


def to_accuracy(step_sec: float, epochs: int = 3) -> float:
    return epochs * (8 * step_sec + 0.5)


def write_sweep(root: Path, uri: str) -> list[Path]:
    """A sweep over one, two and four GPUs.

    One run on one GPU was killed and one on two was resumed; neither counts. On four GPUs three runs reached their
    target; one missed it, one timed out and one diverged.
    """
    sweep = make_sweep(root, SWEEP, uri, 16)
    folders = [sweep]

    def add(**options: Any) -> None:
        asked = config(**options.pop("config"))
        folders.append(make_run(sweep, asked, uri, fingerprint=CLOCKS, **options))

    for gpus, steps in ((1, ONE), (2, TWO)):
        for seed, step_sec in enumerate(steps, 1):
            add(config={"gpus": gpus, "seed": seed, "price": 3.6 * gpus}, step_sec=step_sec)
    add(config={"gpus": 1, "seed": 12, "price": 3.6}, failure="signal:9")
    add(config={"gpus": 2, "seed": 14, "price": 7.2}, tags={"resumed": "1"}, step_sec=9.0)
    four = {"gpus": 4, "price": 14.4}
    for seed, step_sec in enumerate(FOUR, 1):
        add(config={**four, "seed": seed}, step_sec=step_sec)
    add(config={**four, "seed": 11}, failure="nan", failed_after=(0.5,), step_sec=0.04)
    add(config={**four, "seed": 13}, accuracies=(0.1, 0.2, 0.3), step_sec=0.05)
    add(config={**four, "seed": 15}, failure="timeout", failed_after=(0.1, 0.2), step_sec=0.05)
    return folders
