"""What `python -m tracking doctor` tries out: everything that a run needs, before it is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from conf import installation, secrets
from conf.safe_text import printable
from tracking import server
from tracking.environment import cache, nvml
from tracking.run import Journal, Result, RunInfo, documents, run_folder
from tracking.server import TrackingRefused, TrackingUnavailable, connection
from tracking.stacks import MIN_DRIVER

NOT_STARTED = 127  # a shell's exit code for a command that is not there
MIN_FREE_GB = 5.0
NCCL_TIMEOUT_SEC = 180.0
OLDEST_SERVER, NEWEST_TESTED = (3, 5), (3, 17)  # MLflow's versions; the first as in pyproject.toml

CommandRunner = Callable[[Sequence[str], float], tuple[int, str]]  # command, seconds to wait -> exit code, output


@dataclass(frozen=True)
class Finding:
    what: str
    words: str
    ok: bool = True

    @property
    def safe_words(self) -> str:
        """In one line, which an error of NCCL's, say, is not, and without secrets."""
        return printable(" ".join(self.words.split()))

    def __str__(self) -> str:
        return f"{'ok ' if self.ok else 'FIX'}  {self.what}: {self.safe_words}"


@dataclass(frozen=True)
class Subject:
    """What to look at; `uri` may hold credentials."""

    uri: str
    experiment: str = "timetrial"
    runs_dir: Path = Path("runs")
    dataset_path: Path | None = None


def run(command: Sequence[str], timeout_sec: float) -> tuple[int, str]:
    """Exit code and output; of a command that cannot be started or does not end, NOT_STARTED and 124 and the reason.

    Nothing that it has started is left: a process that waits for a GPU keeps its memory.
    """
    folders = [str(installation.SEARCH_FOLDER), os.environ.get("PYTHONPATH")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        with subprocess.Popen(command, env=environ, start_new_session=True, **pipes) as process:
            try:
                output, errors = process.communicate(timeout=timeout_sec)
            finally:  # Ctrl-C too, which does not reach a session of its own
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    except OSError as error:
        return NOT_STARTED, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"still running after {timeout_sec:g} s: ended"
    return process.returncode, output or errors


def examine(asked: Subject, run: CommandRunner = run, free: Callable[[Path], int] | None = None) -> Iterator[Finding]:
    """Every finding, in the order in which a run would come upon it; `run` and `free` are for tests."""
    yield from gpus(run)
    yield bytecode()
    yield from tracking_server(asked)
    for what, path in (("runs_dir", asked.runs_dir), ("cache", cache())):
        yield disk(what, path, free or (lambda place: shutil.disk_usage(place).free))
    if asked.dataset_path is not None:
        yield dataset(asked.dataset_path)


def gpus(run: CommandRunner) -> Iterator[Finding]:
    code, text = run(("nvidia-smi", "-q", "-x"), 60)
    seen = nvml.parse_gpus(text)
    names = [gpu.get("name", "unknown") for gpu in seen.get("gpus", [])]
    if not names:
        missing = code == NOT_STARTED
        words = "none here; gpus=0 trains on the CPU" if missing else f"nvidia-smi finds none: {last_line(text)}"
        yield Finding("GPU", words, ok=missing)
    else:
        counts = " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        yield Finding("GPU", f"{counts}, driver {seen.get('driver')}")
    command = (sys.executable, "-P", "-m", installation.module("trainers.loop.nccl_check"))
    code, text = run(command, NCCL_TIMEOUT_SEC)
    try:
        stack = json.loads(last_line(text))
    except ValueError:
        yield Finding("torch", f"{' '.join(command[1:])} ended with exit code {code}: {last_line(text)}", ok=False)
        return
    yield driver(seen.get("driver"), stack, len(names))
    yield nccl(stack)


def driver(version: str | None, stack: dict[str, Any], num_gpus: int) -> Finding:
    """Whether the driver is new enough for the CUDA that torch was built with."""
    torch, cuda = stack["torch"], stack["cuda"]
    if not num_gpus or version is None:
        return Finding("driver", f"no GPU: not checked (torch {torch}, CUDA {cuda or 'none'})")
    if cuda is None:
        return Finding("driver", f"torch {torch} is built without CUDA: install a build that has it", ok=False)
    least = MIN_DRIVER.get(int(cuda.split(".")[0]))
    if least is None:
        return Finding("driver", f"{version}; what CUDA {cuda} of torch {torch} needs is not known here")
    if int(version.split(".")[0]) < least:
        fitting = [major for major, needed in MIN_DRIVER.items() if int(version.split(".")[0]) >= needed]
        other = f", or a torch built for CUDA {max(fitting)}" if fitting else ""
        words = f"{version} is too old for CUDA {cuda} of torch {torch}: install driver {least} or newer{other}"
        return Finding("driver", words, ok=False)
    if not stack["gpus"]:
        words = f"torch {torch} sees none of the {num_gpus} GPUs: is CUDA_VISIBLE_DEVICES as it should be?"
        return Finding("driver", words, ok=False)
    return Finding("driver", f"{version} is new enough for CUDA {cuda} of torch {torch} (from {least} on)")


def nccl(stack: dict[str, Any]) -> Finding:
    if "error" in stack:
        return Finding("NCCL", f"{stack['error']}. NCCL_DEBUG=INFO says more", ok=False)
    if stack["gpus"] < 2:
        return Finding("NCCL", "no GPU: not checked" if not stack["gpus"] else "one GPU: nothing to talk to")
    words = f"{stack['nccl']}, all-reduce over {stack['gpus']} GPUs at {stack['bus_gb_per_sec']:.1f} GB/s bus bandwidth"
    return Finding("NCCL", words)


def bytecode(module: str = "torch") -> Finding:
    """Whether Python has PyTorch compiled, or may keep what it compiles. Images often forbid it, to stay small."""
    spec = importlib.util.find_spec(module)
    compiled = importlib.util.cache_from_source(spec.origin) if spec and spec.origin else ""
    if not sys.dont_write_bytecode or Path(compiled).is_file():
        return Finding("bytecode", "Python keeps it")
    mend = "unset PYTHONDONTWRITEBYTECODE, or compile the packages once (python -m compileall)"
    return Finding("bytecode", f"Python keeps none, so each process compiles PyTorch anew, for seconds: {mend}")


def tracking_server(asked: Subject) -> Iterator[Finding]:
    shown = secrets.strip_credentials(asked.uri)
    if asked.uri.startswith("sqlite:") and not Path(asked.uri.partition("///")[2]).exists():
        yield Finding("server", f"none: runs go to {shown}, which the first run makes")
        return
    try:
        server.check_server(asked.uri, asked.experiment)
    except (TrackingRefused, TrackingUnavailable) as error:
        yield Finding("server", str(error), ok=False)
        yield Finding("upload", "not tried", ok=False)
        return
    yield version(asked.uri) if connection.is_http(asked.uri) else Finding("server", f"{shown} (no server between)")
    yield upload(asked)


def version(uri: str) -> Finding:
    shown = secrets.strip_credentials(uri)
    try:
        text = connection.request(uri, "GET", "version").text.strip()
    except (connection.Misconfigured, OSError) as error:
        return Finding("server", f"{shown}: {error}", ok=False)
    if not (match := re.fullmatch(r"(\d+)\.(\d+)(\.\S+)?", text)):
        return Finding("server", f"{shown} does not tell its version: is it MLflow's?", ok=False)
    release = int(match[1]), int(match[2])
    user = connection.user(uri)
    words = f"{shown} answers{f' {user}' if user else ''}, MLflow {text}"
    if release < OLDEST_SERVER:
        return Finding("server", f"{words}: too old; upgrade it to {version_text(OLDEST_SERVER)} or newer", ok=False)
    newer = (
        f" (newer than the {version_text(NEWEST_TESTED)} that this was tested with)" if release > NEWEST_TESTED else ""
    )
    return Finding("server", words + newer)


def upload(asked: Subject) -> Finding:
    """Send a run of one metric and one file as every run is sent, read both back, and delete it with its experiment."""
    from tracking.mirror import Mirror
    from tracking.server import open_client

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # An experiment of its own: only its maker, or who has MANAGE on it, can delete it, and others may ask at this time.
    experiment = "-".join(filter(None, ("doctor", connection.user(asked.uri), token_hex(4))))
    with tempfile.TemporaryDirectory() as scratch:
        folder = run_folder.create(Path(scratch), "doctor")
        info = RunInfo("doctor", experiment, secrets.strip_credentials(asked.uri))
        documents.write_json(folder / run_folder.RUN, info)
        documents.write_text(folder / "doctor.txt", info.uid)
        journal = Journal(folder / run_folder.JOURNAL)
        journal.metrics({"doctor": 1.0})
        journal.close()
        documents.write_json(folder / run_folder.RESULT, Result("finished"))
        mirror = Mirror(folder, asked.uri)
        client = open_client(asked.uri)
        try:
            mirror.finish()
            assert mirror.run_id
            with server.answers(asked.uri, ""):
                back = Path(client.download_artifacts(mirror.run_id, "doctor.txt", scratch)).read_text()
                history = [metric.value for metric in client.get_metric_history(mirror.run_id, "doctor")]
        except (TrackingRefused, TrackingUnavailable, ValueError) as error:
            return Finding("upload", str(error), ok=False)
        finally:
            if mirror.experiment_id:
                with suppress(Exception):  # what failed before is told, and is what matters
                    client.delete_experiment(mirror.experiment_id)  # This deletes its run, too.
    if (back, history) != (info.uid, [1.0]):
        return Finding("upload", f"what was read back is not what was sent: {back!r}, {history}", ok=False)
    return Finding("upload", f"a metric and an artifact, in an experiment {experiment!r}, now deleted")


def disk(what: str, path: Path, free: Callable[[Path], int]) -> Finding:
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(what, f"{path}: {there} cannot be written to; give a folder that can", ok=False)
    gb = free(there) / 1e9
    if gb < MIN_FREE_GB:
        return Finding(what, f"{gb:.1f} GB free at {path}: make room, {MIN_FREE_GB:g} GB at least", ok=False)
    return Finding(what, f"{gb:.0f} GB free at {path}")


def dataset(path: Path) -> Finding:
    try:
        entries = sorted(path.iterdir())
        first = next((entry for entry in entries if entry.is_file()), None)
        if first:
            with first.open("rb") as file:
                file.read(1)
    except OSError as error:
        return Finding("dataset", f"{path}: {error.strerror}; give a folder that you can read", ok=False)
    return Finding("dataset", f"{path}: {len(entries) or 'no'} files and folders", ok=bool(entries))


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


def version_text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
