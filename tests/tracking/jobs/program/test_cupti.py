"""CUPTI in a program's Python. There is no GPU: a module in place of cupti-python has the calls that the hook makes,
and a mapped file of its name is the driver's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conf.launch_options import ProfileConfig, ProgramConfig
from conf.schema import PROGRAM, ModelConfig, PrecisionConfig, RunConfig
from tests.support.commands import HANGS_SEC, ROOT
from tracking.jobs.program import process, program_cupti, program_profile
from tracking.jobs.program.moments import now
from tracking.measure import kernels
from tracking.record import Journal, journal, run_folder

# As cupti-python 13 has them: enums, records with attributes, an error with a status.
FAKE = """
import enum, os
from types import SimpleNamespace as Record

ActivityKind = enum.IntEnum("ActivityKind", {"MEMCPY": 1, "MEMSET": 2, "CONCURRENT_KERNEL": 10})
ActivityMemcpyKind = enum.IntEnum("ActivityMemcpyKind", {"HTOD": 1, "DTOH": 2})
Result = enum.IntEnum("Result", {"SUCCESS": 0, "ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": 39})
enabled, callbacks, subscribed = set(), [], []

class cuptiError(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status

def get_timestamp():
    return 1

def subscribe(callback, userdata):
    if os.environ.get("SUBSCRIBED"):
        raise cuptiError(39)
    subscribed.append(callback)
    return 7

def unsubscribe(subscriber):
    assert subscriber == 7 and subscribed.pop()

def activity_register_callbacks(requested, completed):
    size, most = requested()
    assert size > 0 and most == 0
    callbacks.append(completed)

def activity_enable(kind):
    enabled.add(kind)

def activity_disable(kind):
    enabled.remove(kind)

def activity_flush_all(flag):
    place = dict(device_id=0, stream_id=7)
    if not os.environ.get("IDLE"):
        at = 1_000_000_000_000_000
        callbacks[-1]([Record(kind=10, name="_ZN2at6native4fillEi", start=at, end=at + 300_000, **place),
                       Record(kind=10, name="_ZN2at6native4fillEi", start=at + 400_000, end=at + 500_000, **place),
                       Record(kind=1, copy_kind=1, start=at + 500_000, end=at + 600_000, **place)])
"""
# It maps a file of the driver's name, as CUDA does, says when to begin, waits for the hook's thread, and says which
# sitecustomize ran.
PROGRAM_TEXT = """
import builtins, glob, mmap, os, sys, time
files = [open(path, "rb") for path in sys.argv[1:]]
maps = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
folder = os.environ["TIMETRIAL_CUPTI"]
with open(folder + "/.go", "w") as file:
    file.write("0.01")
os.replace(folder + "/.go", folder + "/go")
while not glob.glob(folder + "/trace-*.json") + glob.glob(folder + "/error-*.txt"):
    time.sleep(0.02)
print(getattr(builtins, "CUSTOMIZED", "no other"))
"""


@pytest.fixture
def config() -> RunConfig:
    asked = RunConfig(model=ModelConfig("mine", PROGRAM, 1), precision=PrecisionConfig("fp32", "32-true"))
    asked.program = ProgramConfig(f"{sys.executable} t.py", start="go")
    asked.profile = ProfileConfig(steps=20, seconds=0.01, after_sec=0.01)
    asked.gpus = 1
    return asked


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A run's folder with the hook, beside a fake cupti, the driver's library and a program."""
    (tmp_path / "packages/cupti").mkdir(parents=True)
    (tmp_path / "packages/cupti/__init__.py").touch()
    (tmp_path / "packages/cupti/cupti.py").write_text(FAKE)
    (tmp_path / "libcuda.so.1").write_bytes(b"driver")
    (tmp_path / "t.py").write_text(PROGRAM_TEXT)
    program_cupti.prepare(tmp_path)
    return tmp_path


def run(config: RunConfig, folder: Path, *mapped: str, options: str = "", **variables: str) -> str:
    """Run the program with its variables as the worker gives them."""
    beside = {**os.environ, "PYTHONPATH": str(folder / "packages"), **variables}
    environ = process.environment(config, folder, beside)
    words = [sys.executable, *options.split(), "t.py", *mapped]
    done = subprocess.run(words, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, timeout=HANGS_SEC)
    return done.stdout


def outcome(config: RunConfig, folder: Path) -> dict[str, object]:
    log = Journal(folder / run_folder.JOURNAL)
    program_profile.write(config, folder, log, now())
    log.close()
    return next(event.values for event in journal.events(folder / run_folder.JOURNAL) if event.key == "profile_stop")


def go(config: RunConfig, folder: Path) -> None:
    config.program.start = None
    signal = program_cupti.Signal(config, folder)
    while not (program_cupti.folder_of(folder) / "go").exists():
        signal.tick(has_started=False)


@pytest.mark.slow
def test_kernels_of_a_program_become_its_profile(config: RunConfig, prepared: Path) -> None:
    (prepared / "packages/sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOMIZED = 'its own, too'\n")
    assert run(config, prepared, "libcuda.so.1") == "its own, too\n"
    said = outcome(config, prepared)
    assert said["num_steps"] == 1
    assert "marks no steps" in str(said["notes"])
    profile = kernels.read((prepared / kernels.PROFILE).read_text())
    rows = {row["name"]: (row["calls"], row["ms"]) for row in profile.first["kernels"]}
    assert rows == {"at::native::fill(int)": (2, pytest.approx(0.4)), "Memcpy HtoD": (1, pytest.approx(0.1))}
    assert profile.first["step_ms"] == pytest.approx(0.6)
    assert (profile.software, profile.traces) == ({"program": "CUPTI"}, [kernels.trace_name(0)])
    assert not list(prepared.glob(f"{kernels.SCRATCH}*"))


@pytest.mark.slow
def test_the_worker_starts_the_hook_and_says_when_to_begin(config: RunConfig, prepared: Path) -> None:
    told = PROGRAM_TEXT[: PROGRAM_TEXT.index("with open")] + PROGRAM_TEXT[PROGRAM_TEXT.index("while not") :]
    (prepared / "t.py").write_text(f"print('go, acc 0.5', flush=True)\n{told}")
    config.program = ProgramConfig(f"{sys.executable} t.py libcuda.so.1", cwd=str(prepared), start="^go")
    config.program.metrics = {"eval/accuracy": r"acc (\S+)"}
    folder = prepared / "run"
    folder.mkdir()
    run_folder.write_config(folder, config)
    path = os.pathsep.join([str(ROOT), str(prepared / "packages")])
    done = subprocess.run(
        [sys.executable, "-m", "tracking.jobs.program.worker", str(folder)], cwd=prepared, timeout=HANGS_SEC,
        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (stopped,) = (event for event in journal.events(folder / run_folder.JOURNAL) if event.key == "profile_stop")
    assert stopped.values["num_steps"] == 1
    assert kernels.read((folder / kernels.PROFILE).read_text()).first["kernels"][0]["name"] == "at::native::fill(int)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "libraries", "words"),
    [
        ({"SUBSCRIBED": "1"}, (), "the program's own profiler holds CUPTI"),
        ({"IDLE": "1"}, (), "no kernel ran in 0.01 s. Next: give another profile.after_sec"),
        ({}, ("a/libcupti.so.12", "b/libcupti.so.13"), "two libcupti are loaded, .*a/libcupti.so.12 and .*b/libcupti"),
        ({"PYTHONPATH": ""}, (), "No module named 'cupti'. Next: install cupti-python in the program's Python"),
    ],
    ids=["subscribed", "idle", "two libraries", "not installed"],
)
def test_why_there_is_no_profile_is_said(
    config: RunConfig, prepared: Path, variables: dict[str, str], libraries: tuple[str, ...], words: str
) -> None:
    for library in libraries:
        (prepared / library).parent.mkdir()
        (prepared / library).write_bytes(b"cupti")
    run(config, prepared, "libcuda.so.1", *libraries, **variables)
    with pytest.raises(ValueError, match=words):
        program_cupti.traces(config, prepared)
    assert "error" in outcome(config, prepared)
    assert kernels.read((prepared / kernels.PROFILE).read_text()).num_steps == 0


@pytest.mark.slow
def test_a_python_that_ignores_its_path_is_told_so(config: RunConfig, prepared: Path) -> None:
    go(config, prepared)
    (prepared / "t.py").write_text("print('done')")
    assert run(config, prepared, options="-I") == "done\n"
    with pytest.raises(ValueError, match=r"python -I and -E ignore it.*profile\.file="):
        program_cupti.traces(config, prepared)
    assert run(config, prepared) == "done\n"
    with pytest.raises(ValueError, match="no process of the program had loaded CUDA"):
        program_cupti.traces(config, prepared)


def test_it_begins_once_the_training_has_run_for_so_long(config: RunConfig, prepared: Path) -> None:
    file = program_cupti.folder_of(prepared) / "go"
    (file.parent / "started-1").touch()
    signal = program_cupti.Signal(config, prepared)
    config.profile.after_sec = 1e-9
    signal.tick(has_started=False)
    assert not file.exists()
    with pytest.raises(ValueError, match=r"ended before profile\.after_sec=1e-09 of training\. Next: give less"):
        program_cupti.traces(config, prepared)
    config.profile.after_sec = HANGS_SEC
    signal.tick(has_started=True)
    assert not file.exists()
    config.profile.after_sec = 1e-9
    signal.tick(has_started=True)
    assert json.loads(file.read_text()) == 0.01


def test_only_a_run_that_is_traced_has_the_hook_on_its_path(config: RunConfig, tmp_path: Path) -> None:
    traced = process.environment(config, tmp_path, {"PYTHONPATH": "/theirs"})
    folder = str(program_cupti.folder_of(tmp_path))
    assert (traced["PYTHONPATH"], traced["TIMETRIAL_CUPTI"]) == (f"{folder}:/theirs", folder)
    for profile in (ProfileConfig(), ProfileConfig(steps=20, seed=9), ProfileConfig(file="t.json")):
        config.profile = profile
        assert process.environment(config, tmp_path, {"PYTHONPATH": "/theirs"})["PYTHONPATH"] == "/theirs"
