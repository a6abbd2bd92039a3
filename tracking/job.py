"""One run from its folder's making to its result: spawn the worker, watch it, mirror it, and never leave it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import yaml

from conf import schema
from conf.schema import RunConfig
from tracking import journal, run_folder
from tracking.journal import Journal, Record
from tracking.run_folder import Failure, Result, RunInfo
from tracking.system_metrics import SystemMetricsThread
from tracking.worker_log import WorkerLog

POLL_SEC = 0.1
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SEC = 5.0  # between asking a worker to end and killing it
KILL_SEC = 30.0  # for a killed process to be gone; one that waits for a driver can stay for ever
LAST_WORDS_BYTES = 4000
OWN_FAILURES = ("oom", "nan", "bad_input", "disk_full")  # of a rank, whatever befell the others


class Interrupted(KeyboardInterrupt):
    """The launcher was told to stop (Ctrl-C, SIGTERM, a closed terminal); no library's `except Exception` stops it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class TimedOut(Exception):
    """The run took longer than timeout_sec."""


def raise_on_signals() -> None:
    """Turn the next signal to stop into Interrupted, wherever the main thread is.

    Those that follow are ignored until this is called again: what cleans up is short, and must not be cut off.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in STOPPING:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, ignore)
        raise Interrupted(signum)

    def ignore(signum: int, frame: FrameType | None) -> None:
        """Not SIG_IGN, which tells a signal that the user's shell has us ignore (nohup)."""

    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def run_name(config: RunConfig) -> str:
    """A name that tells a runs table what it was: `vgg-digits-bf16-2gpu-seed1`."""
    devices = f"{config.gpus}gpu" if config.on_gpu() else f"{config.cpu_processes}cpu"
    return f"{config.model.name}-{config.dataset.name}-{config.precision.name}-{devices}-seed{config.seed}"


def make_folder(config: RunConfig, root: Path, sweep: Path | None = None) -> Path:
    """Make the run's folder, empty. Raises OSError."""
    prefix = "" if sweep else time.strftime("%Y%m%d-%H%M%S-")
    return run_folder.create(root, prefix + run_name(config))


def prepare(folder: Path, config: RunConfig, overrides: Sequence[str], uri: str, sweep: Path | None = None) -> None:
    """Fill a new folder with all that the worker and the mirror need. Raises OSError."""
    run_folder.reserve(folder)
    run_folder.write_text(folder / run_folder.OVERRIDES, yaml.safe_dump(list(overrides)))
    parent = os.path.relpath(sweep, folder) if sweep else None
    info = RunInfo(run_name(config), config.tracking.experiment, uri, parent=parent)
    run_folder.write_json(folder / run_folder.RUN, info)
    log = Journal(folder / run_folder.JOURNAL)
    log.params(params(config))
    log.tags({"config_hash": config.config_hash()} | ({"sweep": sweep.name} if sweep else {}))
    log.close()
    schema.save(config, folder / run_folder.CONFIG)


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
    on_record: Callable[[Record], None], started: float, held: int,
) -> Result:  # fmt: skip
    """Train the run in `folder` and return its result, whichever it is.

    `started` is when the job began on the monotonic clock; `on_record` is shown every record as it is written; `held`
    is the descriptor of `owner.hold`. Raises Interrupted when no process is left; the result is then the caller's.
    """
    try:
        failure = supervise(folder, config, argv, env, gpu_uuids, on_record, started, held)
    except TimedOut as error:
        failure = Failure("timeout", str(error))
    except Exception as error:  # a full disk, a bug of ours: what comes after this job can still go
        failure = trouble(error)
    return end(folder, failure)


def supervise(
    folder: Path, config: RunConfig, argv: Sequence[str], env: dict[str, str], gpu_uuids: list[str],
    on_record: Callable[[Record], None], started: float, held: int,
) -> Failure | None:  # fmt: skip
    """Run the worker to its end; the failure that it could not report itself. Leaves no process behind."""
    log = Journal(folder / run_folder.JOURNAL)
    log.event("init_start", since_command_sec=time.monotonic() - started)
    printed = WorkerLog(folder / run_folder.WORKER_LOG)
    with printed as output:
        # A session of its own: Ctrl-C reaches the launcher alone, which then ends the worker in good order.
        process = subprocess.Popen(
            argv, env=env, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            pass_fds=[held],
        )  # fmt: skip
    sensors = None
    try:
        if config.tracking.system_metrics_interval_sec:
            sensors = SystemMetricsThread(log, gpu_uuids, folder, config.tracking.system_metrics_interval_sec)
            sensors.start()
        watch(process, folder / run_folder.JOURNAL, config.timeout_sec, on_record)
    finally:
        stop(process)
        printed.close()
        if sensors is not None:
            sensors.close()
    log.close()
    return unexplained(folder, process)


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
    for signum, patience in ((signal.SIGTERM, GRACE_SEC), (signal.SIGKILL, KILL_SEC)):
        with suppress(ProcessLookupError):  # the whole group is gone
            os.killpg(process.pid, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def unexplained(folder: Path, process: subprocess.Popen[bytes]) -> Failure | None:
    """The failure of a worker that left no result: it was killed, or could not even start."""
    code = process.returncode
    if run_folder.read_result(folder) is not None:
        return None
    if code is None:
        return Failure("error", f"process {process.pid} hangs in the kernel and cannot be killed", last_words(folder))
    if code < 0:
        return killed(folder, -code, f"the worker was killed by {signal.Signals(-code).name}")
    message = f"the worker ended with exit code {code} and no result"
    return recorded(folder) or Failure("error", message, last_words(folder))


def killed(folder: Path, signum: int, message: str, time_ms: int | None = None) -> Failure:
    """The failure of a run that was killed, unless one of its ranks had failed for a reason of its own before."""
    return recorded(folder) or Failure(
        f"signal:{signum}", message, last_words(folder), time_ms=time_ms or run_folder.now_ms()
    )


def recorded(folder: Path) -> Failure | None:
    """The first failure that ranks have left in files, of those that another process's end does not explain."""
    found = [Failure(**run_folder.read_json(path)) for path in folder.glob(run_folder.FAILURE.format(rank="*"))]
    own = [failure for failure in found if failure.kind in OWN_FAILURES]
    return min(own, key=lambda failure: failure.time_ms, default=None)


def last_words(folder: Path) -> str:
    path = folder / run_folder.WORKER_LOG
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_WORDS_BYTES))
        return file.read().decode(errors="replace")


def trouble(error: Exception) -> Failure:
    """The failure of a job that the launcher itself could not go on with."""
    kind = "disk_full" if run_folder.is_full(error) else "error"
    return Failure(kind, f"the launcher: {type(error).__name__}: {error}", traceback.format_exc())


def stopped(folder: Path, error: Interrupted) -> Result:
    """The result of a run that the launcher was told to stop."""
    return end(folder, Failure(f"signal:{error.signum}", f"stopped by {error}", last_words(folder)))


def end(folder: Path, failure: Failure | None) -> Result:
    """The run's result, written where there is none. What a worker has finished stays finished."""
    found = run_folder.read_result(folder)
    if found is not None and (failure is None or found.status == "finished"):
        return found
    assert failure is not None
    result = Result("killed" if failure.kind.startswith("signal:") else "failed", failure=failure)
    with suppress(OSError):  # no room even for that: `sync` ends the run when there is
        run_folder.write_result(folder, result)
    return result
