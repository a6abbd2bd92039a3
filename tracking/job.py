"""One run from its folder's making to its result: spawn the worker, watch it, mirror it, and never leave it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import yaml

from conf import schema
from conf.schema import ConfigError, RunConfig
from tracking import journal, run_folder
from tracking.journal import Journal, Record
from tracking.run_folder import Failure, Result, RunInfo
from tracking.system_metrics import SystemMetricsThread
from tracking.worker_log import WorkerLog

POLL_SEC = 0.1
STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE_SEC = 5.0  # between asking a worker to end and killing it


class Interrupted(KeyboardInterrupt):
    """The launcher was told to stop (Ctrl-C or SIGTERM); no `except Exception` of a library can swallow it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class TimedOut(Exception):
    """The run took longer than timeout_sec."""


def raise_on_signals() -> None:
    """Turn the next SIGINT or SIGTERM into Interrupted, wherever the main thread is.

    Those that follow are ignored until this is called again: what cleans up is short, and must not be cut off.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted(signum)

    for number in STOPPING:
        signal.signal(number, interrupt)


def run_name(config: RunConfig) -> str:
    """A name that tells a runs table what it was: `vgg-digits-bf16-2gpu-seed1`."""
    devices = f"{config.gpus}gpu" if config.on_gpu() else f"{config.cpu_processes}cpu"
    return f"{config.model.name}-{config.dataset.name}-{config.precision.name}-{devices}-seed{config.seed}"


def prepare(config: RunConfig, overrides: Sequence[str], root: Path, uri: str, sweep: Path | None = None) -> Path:
    """Make the run's folder with all that the worker and the mirror need. Raises ConfigError where it cannot."""
    name = run_name(config)
    prefix = "" if sweep else time.strftime("%Y%m%d-%H%M%S-")
    try:
        folder = run_folder.create(root, prefix + name)
    except OSError as error:
        raise ConfigError(
            f"runs_dir={config.runs_dir}: {error.strerror}: {root}; give a folder that you can write to"
        ) from error
    run_folder.write_text(folder / run_folder.OVERRIDES, yaml.safe_dump(list(overrides)))
    info = RunInfo(name, config.tracking.experiment, uri, parent=os.path.relpath(sweep, folder) if sweep else None)
    run_folder.write_json(folder / run_folder.RUN, info)
    log = Journal(folder / run_folder.JOURNAL)
    log.params(params(config))
    log.tags({"config_hash": config.config_hash()} | ({"sweep": sweep.name} if sweep else {}))
    log.close()
    schema.save(config, folder / run_folder.CONFIG)
    return folder


def params(config: RunConfig) -> dict[str, journal.Scalar]:
    """What MLflow shows and compares as params; the worker adds what only it knows (max_epochs)."""
    optimizer = config.model.optimizer
    targets = config.targets()
    found: dict[str, journal.Scalar] = {
        "model": config.model.name,
        "dataset": config.dataset.name,
        "precision": config.precision.name,
        "stack": config.stack.name,
        "instance": config.instance.name,
        "gpus": config.gpus,
        "nodes": config.nodes,
        "cpu_processes": config.cpu_processes if not config.on_gpu() else None,
        "seed": config.seed,
        "target_metric": ",".join(targets) or None,
        "target_value": ",".join(f"{value:g}" for value in targets.values()) or None,
        "batch_size": config.device_batch_size(),
        "global_batch_size": config.global_batch_size(),
        "limit_train_batches": config.limit_train_batches,
        "compile": config.compiled(),
        "optimizer/lr": optimizer.lr,
        "optimizer/lr_scaling": optimizer.lr_scaling,
        "optimizer/weight_decay": optimizer.weight_decay,
    }
    found |= {f"hparams/{key}": str(value) for key, value in config.model.hparams.items()}
    return {key: value for key, value in found.items() if value is not None}


def run_job(
    folder: Path, config: RunConfig, argv: Sequence[str], env: dict[str, str], gpu_uuids: list[str],
    on_record: Callable[[Record], None], started: float,
) -> Result:  # fmt: skip
    """Train the run in `folder` and return its result, whichever it is. Raises Interrupted after cleaning up.

    `started` is when the job began on the monotonic clock; `on_record` is shown every record as it is written.
    """
    log = Journal(folder / run_folder.JOURNAL)
    log.event("init_start", since_command_sec=time.monotonic() - started)
    printed = WorkerLog(folder / run_folder.WORKER_LOG)
    with printed as output:
        # A session of its own: Ctrl-C reaches the launcher alone, which then ends the worker in good order.
        process = subprocess.Popen(
            argv, env=env, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    sensors = None
    try:
        if config.tracking.system_metrics_interval_sec:
            sensors = SystemMetricsThread(log, gpu_uuids, folder, config.tracking.system_metrics_interval_sec)
            sensors.start()
        watch(process, folder / run_folder.JOURNAL, config.timeout_sec, on_record)
        failure = None
    except TimedOut as error:
        failure = Failure("timeout", str(error))
    except Interrupted as error:
        stop(process)
        stopped(folder, error)
        raise
    finally:
        stop(process)
        printed.close()
        if sensors is not None:
            sensors.close()
    return end(folder, log, failure or unexplained(folder, process.returncode))


def watch(
    process: subprocess.Popen[bytes], path: Path, timeout_sec: float | None, on_record: Callable[[Record], None]
) -> None:
    """Show records until the worker ends. Raises TimedOut."""
    deadline = time.monotonic() + timeout_sec if timeout_sec else float("inf")
    offset = 0
    running = True
    while running:
        running = process.poll() is None
        for record, position in journal.read(path, offset):
            offset = position
            on_record(record)
        if time.monotonic() > deadline:
            raise TimedOut(f"the run took longer than timeout_sec={timeout_sec:g}")
        if running:
            time.sleep(POLL_SEC)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the worker and every process it started, kindly first."""
    for signum, patience in ((signal.SIGTERM, GRACE_SEC), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):  # the whole group is gone
            os.killpg(process.pid, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def unexplained(folder: Path, returncode: int) -> Failure | None:
    """The failure of a worker that left no result: it was killed, or could not even start."""
    if run_folder.read_result(folder) is not None:
        return None
    last_words = (folder / run_folder.WORKER_LOG).read_text(errors="replace")[-4000:]
    if returncode < 0:
        message = f"the worker was killed by {signal.Signals(-returncode).name}"
        return Failure(f"signal:{-returncode}", message, last_words)
    return Failure("error", f"the worker ended with exit code {returncode} and no result", last_words)


def stopped(folder: Path, error: Interrupted) -> Result:
    """The result of a run that the launcher was told to stop, written and journaled."""
    return end(folder, Journal(folder / run_folder.JOURNAL), Failure(f"signal:{error.signum}", f"stopped by {error}"))


def end(folder: Path, log: Journal, failure: Failure | None) -> Result:
    """Make sure that the run has a result, and its journal says how it ended."""
    if failure is not None:
        status = "killed" if failure.kind.startswith("signal:") else "failed"
        run_folder.write_json(folder / run_folder.RESULT, Result(status, failure=failure))
    result = run_folder.read_result(folder)
    assert result is not None
    if result.failure is not None:
        log.tags({"failure": result.failure.kind, "mlflow.note.content": result.failure.message})
    log.close()
    return result
