"""Programs that were not written for timetrial, through launch.py: what they print becomes a run."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
import venv
from pathlib import Path

import psutil
import pytest

from tests.support.commands import HANGS_SEC, Launched, begin, collect, events, launch, processes_of, start
from tests.support.folders import wait_for
from tests.support.run_processes import workers_of
from tests.tracking.machine.stacks.fake_engine import IMAGE, FakeEngine
from tracking.analysis.results import FolderRuns
from tracking.record import journal, run_folder

pytestmark = pytest.mark.slow

# As such a user would write it: a network of PyTorch on images of ten classes, with prints.
IMAGES = """
import sys, time
import torch

torch.manual_seed(int(sys.argv[1]))
labels = torch.randint(10, (1797,))
images = torch.rand(10, 64)[labels] + 0.3 * torch.randn(1797, 64)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
print("training", flush=True)
for epoch in range(1, 5):
    for batch in torch.arange(1500).split(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"Epoch {epoch} - loss: {loss.item():.4f} - val acc: {100 * right:.2f}%", time.time(), flush=True)
"""
# A program without PyTorch, in MLPerf's words, that starts a daemon in a session of its own.
LOGS = """
import json, os, subprocess, sys, time

def log(key, value=None, **metadata):
    line = {"namespace": "", "time_ms": int(time.time() * 1e3), "event_type": "POINT_IN_TIME", "key": key,
            "value": value, "metadata": metadata}
    print(":::MLLOG", json.dumps(line), flush=True)

daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
sys.stdout.buffer.write(bytes(range(256)) + b"\\n:::MLLOG {torn\\n")
log("train_samples", 500)
log("global_batch_size", 50)
log("run_start")
for epoch in range(1, 5):
    log("epoch_start", epoch_num=epoch)
    time.sleep(0.2)
    log("epoch_stop", epoch_num=epoch)
    log("eval_start", epoch_num=epoch)
    time.sleep(0.1)
    log("eval_accuracy", 0.2 * epoch, epoch_num=epoch)
    log("eval_stop", epoch_num=epoch)
log("eval_accuracy", "n/a", epoch_num=4)
log("run_stop", status="success")
os._exit(int(sys.argv[1]))
"""
# Two ranks of torchrun that agree by gloo, and rank 0 writes the journal's lines.
RANKS = """
import json, os, torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if dist.get_rank() == 0:
    with open(os.environ["TIMETRIAL_JOURNAL"], "a") as file:
        for line in ({"kind": "event", "key": "run_start"}, {"kind": "metrics", "values": {"ranks": total.item()}}, 3,
                     {"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.5}}}):
            file.write(json.dumps(line) + "\\n")
dist.destroy_process_group()
"""
# It ignores SIGTERM, prints without end, and writes the number of a daemon of its own.
STUBBORN = """
import signal, subprocess, sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
daemon = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
open("pids", "w").write(f"{daemon.pid}")
while True:
    print("x" * 1000)
"""
# It trains until it is ended.
ENDLESS = """
import time

while True:
    print("loss 0.5", flush=True)
    time.sleep(0.001)
"""


def run(cwd: Path, source: str, arguments: str = "", *options: str) -> Launched:
    (cwd / "script.py").write_text(source)
    return launch(cwd, *asked(arguments, "" if "torch" in source else "env "), *options)


def asked(arguments: str = "", before: str = "env ") -> list[str]:
    """Words for launch.py. For a command that begins with `env`, the fingerprint does not import PyTorch."""
    command = f"program.command={before}{sys.executable} script.py {arguments}"
    return ["model=program", command, "gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0"]


def tags(folder: Path) -> dict[str, str]:
    merged: dict[str, str] = {}
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        merged |= record.values if record.kind == "tags" else {}
    return merged


def test_a_script_of_pytorch_is_measured_by_what_it_prints(tmp_path: Path) -> None:
    metrics = r'+program.metrics={eval/acc: "val acc: (\S+)%", train/loss: "loss: (\S+)"}'
    options = (metrics, r"program.epoch=Epoch (\d+)", "program.start=^training", "target=85", "seed=3")
    launched = run(tmp_path, IMAGES, "{seed}", *options)
    assert launched.code == 0, launched.output
    printed = [line.split() for line in (launched.folder / run_folder.WORKER_LOG).read_text().splitlines()]
    shown = {int(words[1]): (float(words[8].rstrip("%")), float(words[9])) for words in printed if words[0] == "Epoch"}
    first = min(epoch for epoch, (accuracy, _) in shown.items() if accuracy >= 85)
    figures = launched.result["metrics"]
    assert figures["epochs/to_accuracy"] == first
    (began,) = events(launched.folder, "run_start")
    reached = next(row for row in events(launched.folder, "eval_accuracy") if row.values["epoch_num"] == first)
    assert figures["time/to_accuracy_sec"] == pytest.approx(reached.clock_sec - began.clock_sec)
    assert reached.time_ms / 1e3 >= shown[first][1] - 0.002, "it was read before it was printed"
    assert figures["eval/best_acc"] == max(accuracy for accuracy, _ in shown.values())
    assert "time/to_accuracy_train_sec" not in figures
    assert "throughput/samples_per_sec" not in figures
    assert "env.torch" in tags(launched.folder)
    assert "program.clock" not in tags(launched.folder)


def test_mlperfs_log_is_read_and_a_daemon_ends_with_its_program(tmp_path: Path) -> None:
    launched = run(tmp_path, LOGS, "0", "target=0.6")
    assert launched.code == 0, launched.output
    figures = launched.result["metrics"]
    lines = (launched.folder / run_folder.WORKER_LOG).read_bytes().splitlines()
    said = [json.loads(line[9:]) for line in lines if line.startswith(b':::MLLOG {"')]
    at = {(line["key"], line["metadata"].get("epoch_num")): line["time_ms"] / 1e3 for line in said}
    assert figures["time/to_accuracy_sec"] == pytest.approx(at["eval_accuracy", 3] - at["run_start", None])
    assert figures["epochs/to_accuracy"] == 3
    trained = sum(at["epoch_stop", number] - at["epoch_start", number] for number in (3, 4))
    assert figures["throughput/samples_per_sec"] == pytest.approx(1000 / trained)
    assert figures["world_size"] == 1
    assert "1: a line of MLPerf's log cannot be read" in tags(launched.folder)["program.unread_lines"]
    assert tags(launched.folder)["program.no_number"] == "accuracy of epoch 4: 'n/a'"
    assert not processes_of(tmp_path)
    (read,) = FolderRuns([tmp_path]).find([launched.folder.name])
    assert read.params["global_batch_size"] == "50"


def test_an_exit_code_is_a_failure_with_the_last_words(tmp_path: Path) -> None:
    launched = run(tmp_path, LOGS, "7", "target=0.6")
    assert launched.code == 1
    failure = launched.result["failure"]
    assert (failure["kind"], failure["message"]) == ("error", "the program ended with exit code 7")
    assert '"run_stop"' in failure["traceback"]


# It needs nothing but Python, and says which one it runs on.
BARE = """
import sys
print("on", sys.prefix, flush=True)
print("epoch 1 acc 0.75", flush=True)
"""
DECLARED = (r"+program.metrics={eval/accuracy: 'acc (\S+)'}", r"program.epoch=epoch (\d+)", "target=0.7")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The Python of an environment that holds no package."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (tmp_path / "script.py").write_text(BARE)
    return tmp_path / "bare" / "bin" / "python"


def is_bare(launched: Launched, python: Path) -> None:
    """The program ran on the bare environment, and the run's tags are of it alone."""
    assert launched.code == 0, launched.output
    assert launched.result["metrics"]["target_reached"] == 1
    printed = (launched.folder / run_folder.WORKER_LOG).read_text()
    assert f"on {python.parent.parent}" in printed
    said = tags(launched.folder)
    assert said["env.python"] == platform.python_version()
    assert not {"env.torch", "env.cuda", "env.cudnn", "env.nccl", "env.libraries", "env.stack_id"} & set(said)
    assert (launched.folder / run_folder.REQUIREMENTS).read_text() == ""


OFFLINE = ("model=program", "gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("python script.py", marks=pytest.mark.exhaustive),
        "bash -c 'python script.py'",
        pytest.param("{bare} script.py", marks=pytest.mark.exhaustive),
    ],
)
def test_a_stacks_python_needs_no_package_for_a_program(tmp_path: Path, bare: Path, command: str) -> None:
    stack = ("stack.name=bare", "stack.kind=python", f"stack.python={bare}")
    words = f"program.command={command.replace('{bare}', str(bare))}"
    is_bare(launch(tmp_path, *OFFLINE, words, *stack, *DECLARED), bare)


def test_without_a_stack_the_tags_are_of_the_python_that_the_command_names(tmp_path: Path, bare: Path) -> None:
    is_bare(launch(tmp_path, *OFFLINE, f"program.command={bare} script.py", *DECLARED), bare)


def test_of_a_command_that_names_no_python_no_tag_tells_one(tmp_path: Path, bare: Path) -> None:
    words = f"program.command=bash -c '{bare} script.py'"
    launched = launch(tmp_path, *OFFLINE, words, *DECLARED)
    assert launched.code == 0, launched.output
    of_a_python = {"env.python", "env.torch", "env.cuda", "env.cudnn", "env.nccl", "env.libraries", "env.stack_id"}
    assert not of_a_python & set(tags(launched.folder))
    assert "env.cpu" in tags(launched.folder)


def test_a_promise_of_the_stack_is_held_by_the_programs_python(tmp_path: Path, bare: Path) -> None:
    stack = ("stack.name=bare", "stack.kind=python", f"stack.python={bare}", "+stack.expect.torch=2.6")
    launched = launch(tmp_path, *OFFLINE, "program.command=python script.py", *stack, *DECLARED)
    assert launched.code == 2
    assert "stack.expect.torch: expected 2.6, found none" in launched.result["failure"]["message"]


def test_an_image_needs_no_package_for_a_program(tmp_path: Path, bare: Path) -> None:
    native = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    fake = FakeEngine(tmp_path / "bin", {"image": {**IMAGE, "Architecture": native}}).install("podman")
    stack = {"name": "boxed", "kind": "container", "python": str(bare),
             "container": {"engine": "podman", "image": "example.org/jax:1"}}  # fmt: skip
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack" / "boxed.yaml").write_text(json.dumps(stack))
    asked = (*OFFLINE, "stack=boxed", f"program.command={bare} script.py", *DECLARED)
    launched = launch(tmp_path, "--config-dir", str(tmp_path), *asked, PATH=fake.path)
    is_bare(launched, bare)
    assert tags(launched.folder)["env.image"] == IMAGE["Digest"]


def test_a_program_that_says_nothing_of_the_target_is_no_miss_and_is_told_how_to_say_it(tmp_path: Path) -> None:
    command = "program.command=echo val acc 0.9"
    launched = launch(tmp_path, *OFFLINE, command, "target=0.5")
    assert launched.code == 0, launched.output
    assert "no evaluation had the target's accuracy" in launched.output
    assert "program.metrics as eval/accuracy" in launched.output
    assert "target not reached" not in launched.output


# The first seed's accuracy is NaN at first; the second prints no accuracy.
ODD = """
import sys, time

if sys.argv[1] == "1":
    print("acc nan", flush=True)
    time.sleep(1)
    print("acc 0.9", flush=True)
"""


def test_a_sweep_ends_with_its_table_whatever_its_programs_say_and_its_terminal_shows(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ODD)
    metrics = r'+program.metrics={eval/accuracy: "acc (\S+)"}'
    bare = {"PYTHONIOENCODING": "ascii", "COLUMNS": "60", "PYTHONOPTIMIZE": "1"}
    process = start(tmp_path, "-m", *asked("{seed}"), metrics, "target=0.5", "seed=range(1,3)", **bare)
    launched = collect(process, tmp_path)
    assert launched.code == 0, launched.output
    assert "1 of 2" in " ".join(launched.output.split()), launched.output
    odd, silent = (json.loads((folder / run_folder.RESULT).read_text()) for folder in launched.folders)
    assert odd["metrics"]["target_reached"] == 1
    assert "target_reached" not in silent["metrics"]


def test_a_sweep_of_one_failed_program_shows_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('no such file: data.bin'); raise SystemExit(3)")
    launched = launch(tmp_path, "-m", *asked())
    assert launched.code == 1
    assert "it last printed: no such file: data.bin; see runs/" in " ".join(launched.output.split())


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    launched = launch(tmp_path, *OFFLINE, "program.command=no-such-program")
    assert launched.code == 2
    assert launched.result["failure"]["kind"] == "bad_input"
    assert "no-such-program: No such file" in launched.result["failure"]["message"]


def test_torchruns_ranks_are_the_world_size_and_the_journals_lines_are_read(tmp_path: Path) -> None:
    launched = run(tmp_path, RANKS, "", "program.launch=torchrun", "cpu_processes=2", "target=0.5")
    assert launched.code == 0, launched.output
    assert launched.result["metrics"]["world_size"] == 2
    assert launched.result["metrics"]["target_reached"] == 1
    (ranks,) = [record.values["ranks"] for record, _ in journal.read(launched.folder / run_folder.JOURNAL)
                if "ranks" in record.values]  # fmt: skip
    assert ranks == 2
    assert 'needs "kind"' in tags(launched.folder)["program.unread_lines"]
    assert not processes_of(tmp_path)


@pytest.mark.parametrize("how", ["stop", "kill", "kill its worker"])
def test_nothing_is_left_of_a_program_that_ignores_sigterm(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(STUBBORN)
    process = begin(tmp_path, *asked())
    wait_for(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    daemon = int((tmp_path / "pids").read_text())
    wait_for(lambda: sum(path.stat().st_size for path in tmp_path.rglob(run_folder.WORKER_LOG)) > 1_000_000)
    if how == "kill its worker":  # as the kernel does for lack of memory
        (folder,) = (path.parent for path in tmp_path.glob(f"runs/*/{run_folder.RUN}"))
        for worker in workers_of(folder, tmp_path):
            worker.kill()
    else:
        os.kill(process.pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
    launched = collect(process, tmp_path)
    deadline = time.monotonic() + HANGS_SEC
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(daemon) or psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE
    if how == "stop":
        assert launched.result["failure"]["kind"] == "signal:15"


def test_a_full_disk_ends_the_program_and_is_what_the_run_says(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ENDLESS)
    metrics = r"+program.metrics={train/loss: 'loss (\S+)'}"
    # The reserve for the result fits, and the journal of a thousand losses does not.
    launched = collect(begin(tmp_path, *asked(), metrics, max_file_bytes=70_000), tmp_path)
    assert launched.code == 1, launched.output
    assert (launched.result["status"], launched.result["failure"]["kind"]) == ("failed", "disk_full")
    assert not processes_of(tmp_path)
