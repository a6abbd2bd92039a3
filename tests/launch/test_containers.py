"""Trainings in containers: of podman's where it can be had, and of an engine that contains nothing."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import commands, podman, slurm_cluster
from tests.support.commands import ROOT, Launched, collect, launch
from tests.support.folders import wait_for
from tests.support.forked import Forked
from tests.support.in_process import answer
from tests.support.slurm_cluster import Cluster
from tests.tracking.machine.stacks.fake_engine import ANSWER, IMAGE, FakeEngine
from tracking.machine.environment import repository
from tracking.record import journal, run_folder, run_lock

pytestmark = pytest.mark.slow

# Without system metrics no launcher imports MLflow for its collectors.
OFFLINE = ("gpus=0", "dataset=digits", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")
OFFLINE_PROGRAM = (
    "model=program", "program.command=echo acc 0.9", "+program.metrics={eval/accuracy: 'acc (.+)'}", "target=0.5",
    "gpus=0", *OFFLINE[2:],
)  # fmt: skip
VGG = (*OFFLINE, "target=0.05", "limit_train_batches=2", "max_epochs=1")
LONG = (*OFFLINE, "target=1.0", "max_epochs=1000")  # It trains until it is ended.


def of(launched: Launched, stack: str) -> Path:
    [folder] = [folder for folder in launched.folders if run_folder.read_config(folder).stack.name == stack]
    return folder


def failure(launched: Launched, stack: str) -> tuple[str, str]:
    record = json.loads((of(launched, stack) / "result.json").read_text())["failure"]
    return record["kind"], record["message"]


def tags(folder: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        if record.kind == "tags":
            values |= {key: str(value) for key, value in record.values.items()}
    return values


# ------------------------------------------------------------------------------------- an engine that contains nothing


def test_a_container_that_cannot_start_fails_alone(tmp_path: Path) -> None:
    native = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    fake = FakeEngine(tmp_path / "bin", {"image": {**IMAGE, "Architecture": native}}).install("podman")
    names = {"e125": 125, "e127": 127, "fine": 0}  # tests/tracking/machine/stacks/test_container.py has all codes
    for name, code in names.items():
        podman.declare(tmp_path, name, {"mounts": [], "options": [f"--fail={code}"] if code else []})
    asked = (f"stack={','.join(names)}", *OFFLINE_PROGRAM)
    launched = launch(
        tmp_path, "-m", "--config-dir", str(tmp_path), *asked, PATH=fake.path, MLFLOW_TRACKING_TOKEN="t0k3n"
    )
    assert launched.code == 1, launched.output
    for code, words in ((125, "could not start"), (127, "no such command")):
        kind, message = failure(launched, f"e{code}")
        assert kind == "bad_input"
        assert words in message
        assert "the fake fails as asked" in message
    folder = of(launched, "fine")
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    assert tags(folder)["env.image"] == IMAGE["Digest"]
    uid = run_folder.read_info(folder).uid
    [started] = [words for words in fake.asked if f"timetrial-{uid}" in words and words[1] == "run"]
    assert f"{folder}:{folder}" in started
    assert not any("t0k3n" in word for words in fake.asked for word in words)
    assert ["podman", "rm", "--force", "--ignore", "--time", "0", f"timetrial-{uid}"] in fake.asked


@pytest.mark.exhaustive
def test_an_image_that_is_gone_when_its_turn_comes_fails_its_job_and_the_sweep_goes_on(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path / "bin", {"image": {**IMAGE, "Architecture": None}, "answer": ANSWER}).install("podman")
    podman.declare(tmp_path, "boxed", {"mounts": [], "options": ["--fail=125", "--gone"]})
    asked = ("stack=boxed", *VGG, "seed=1,2,3")
    launched = launch(tmp_path, "-m", "--config-dir", str(tmp_path), *asked, PATH=fake.path)
    assert launched.code == 2, launched.output
    failures = [json.loads((folder / "result.json").read_text())["failure"] for folder in launched.folders]
    assert len(failures) == 3
    assert ["was removed from this machine" in each["message"] for each in failures] == [False, True, True]


def test_a_dry_run_shows_the_container_and_makes_nothing(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path / "bin", {"image": IMAGE, "answer": {**ANSWER}}).install("podman")
    podman.declare(tmp_path, "boxed", {"mounts": []})
    shown = answer(tmp_path, "--config-dir", str(tmp_path), "stack=boxed", *VGG, "dry_run=true", PATH=fake.path)
    if platform.machine() == "x86_64":
        assert shown.code == 0, shown.output
        assert "timetrial-UID" in shown.output
    assert not list(tmp_path.glob("runs/*"))


def test_an_image_of_another_architecture_is_refused_and_the_others_named(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path / "bin", {"image": {**IMAGE, "Architecture": "sparc"}}).install("podman")
    podman.declare(tmp_path, "boxed", {"mounts": []})
    asked = ("stack=boxed,native", *VGG)
    refused = answer(tmp_path, "-m", "--config-dir", str(tmp_path), *asked, PATH=fake.path)
    assert refused.code == 2
    assert "built for sparc" in refused.output
    assert "These can run: stack=native" in refused.output
    asked = (*asked, "sweep.run_others=true", "dry_run=true")
    others = answer(tmp_path, "-m", "--config-dir", str(tmp_path), *asked, PATH=fake.path)
    assert others.code == 0, others.output
    assert "  refused: stack=boxed: stack.container.image=" in others.output
    assert others.output.count("trainers.loop.worker") == 1, "the other job's command"


# -------------------------------------------------------------------------------------------------------------- podman


@pytest.fixture(scope="module")
def image() -> str:
    if reason := podman.why_not():
        pytest.skip(reason)
    return podman.IMAGE


@pytest.fixture(scope="module")
def sweep(image: str, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Three stacks that fail, each for a reason of its own, and one that trains."""
    folder = tmp_path_factory.mktemp("containers")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "pytorch_lightning.py").write_text("raise ImportError('no Lightning for you')")
    podman.declare(folder, "stranger", {"user": "12345:12345"})
    podman.declare(folder, "promising", expect={"torch": "1.0"})
    podman.declare(folder, "broken", env={"PYTHONPATH": str(broken)})
    podman.declare(folder, "boxed", env={"OMP_NUM_THREADS": "1", "GIT_DIR": "/nowhere"})  # git seems missing
    asked = ("stack=stranger,promising,broken,boxed", *VGG)
    return launch(folder, "-m", "--config-dir", str(folder), *asked, HF_TOKEN="hf_abcdefghijklmnop", NCCL_DEBUG="WARN")


@pytest.mark.service
def test_a_worker_trains_in_a_container_and_says_which_image_it_was(sweep: Launched) -> None:
    folder = of(sweep, "boxed")
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "finished", sweep.output
    facts = json.loads((folder / "fingerprint.json").read_text())
    run_tags = tags(folder)
    assert run_tags["env.image"].startswith("sha256:")
    assert facts["host"]["container"] == "podman"
    assert run_tags["env.stack_id"]
    assert len(run_tags["git.commit"]) == 40
    assert {"git": facts["git"]} == repository.ask()(), "as it is outside, with what is not committed"
    assert (facts["environment"]["OMP_NUM_THREADS"], facts["environment"]["NCCL_DEBUG"]) == ("1", "WARN")
    kept = "".join(path.read_text(errors="replace") for path in folder.iterdir() if path.is_file())
    assert "hf_abcdefghijklmnop" not in kept + sweep.output


@pytest.mark.service
def test_a_program_trains_in_a_container_whose_python_holds_no_package(image: str, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    podman.declare(tmp_path, "bare", {"mounts": [*podman.MOUNTS, str(tmp_path / "bare")]}, python=python)
    words = ("model=program", "stack=bare", f"program.command={python} -c 'print(\"acc 0.75\")'", "gpus=0")
    said = (r"+program.metrics={eval/accuracy: 'acc (\S+)'}", "target=0.7", "tracking.offline=true")
    launched = launch(tmp_path, "--config-dir", str(tmp_path), *words, *said)
    assert launched.code == 0, launched.output
    assert launched.result["metrics"]["target_reached"] == 1
    run_tags = tags(launched.folder)
    assert run_tags["env.image"].startswith("sha256:")
    assert run_tags["env.python"] == platform.python_version()
    assert not {"env.torch", "env.cuda", "env.cudnn", "env.nccl"} & set(run_tags)
    assert podman.containers() == []


# Prints for each folder whether it could be written to, and the target of a link in the run's folder.
INTRUDER = """
import json, os, sys
def tried(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False
run, cache, *others = sys.argv[1:]
(run,) = [folder for folder in (os.path.join(run, name) for name in os.listdir(run)) if os.path.isdir(folder)]
os.symlink(others[0], os.path.join(run, "link"))
places = {place: tried(os.path.join(place, "evil")) for place in [run, cache, *others[1:]]}
rooms = ("stacks", "images", "compiled", "mlflow", "ceilings", "versions", "text")
places |= {room: os.makedirs(os.path.join(cache, "text"), exist_ok=True) or tried(os.path.join(cache, room, "evil"))
           for room in rooms}
own = os.path.dirname(os.environ["TORCHINDUCTOR_CACHE_DIR"])
places["its own steps"] = tried(os.path.join(own, "mine"))
print("places", json.dumps(places))
print("secret", os.path.exists(os.path.join(run, "link")), os.path.exists(others[0]))
print("acc 0.75")
"""


@pytest.mark.exhaustive
@pytest.mark.service
def test_what_runs_in_a_container_can_write_where_it_has_to_and_nowhere_that_is_executed(
    image: str, tmp_path: Path
) -> None:
    """An image that could write an environment of the cache would be executed outside of its container later."""
    here, cache, other = tmp_path / "here", tmp_path / "cache", tmp_path / "other"
    for folder in (here, other):
        folder.mkdir()
    (tmp_path / "secret").write_text("t0k3n")
    (here / "intruder.py").write_text(INTRUDER)
    mounts = [*podman.MOUNTS, f"{here / 'intruder.py'}"]
    podman.declare(here, "boxed", {"mounts": mounts})
    arguments = (here / "runs", cache, tmp_path / "secret", other, here, ROOT, Path.home(), "/etc")
    command = " ".join([sys.executable, str(here / "intruder.py"), *map(str, arguments)])
    said = (r"+program.metrics={eval/accuracy: 'acc (\S+)'}", "target=0.7", "tracking.offline=true", "gpus=0")
    launched = launch(
        here, "--config-dir", str(here), "model=program", "stack=boxed", f"program.command={command}", *said,
        TIMETRIAL_CACHE=str(cache),
    )  # fmt: skip
    assert launched.code == 0, launched.output
    log = (launched.folder / "worker.log").read_text()
    places = json.loads(next(line for line in log.splitlines() if line.startswith("places ")).partition(" ")[2])
    written = {Path(place).name for place, could in places.items() if could}
    assert written >= {launched.folder.name, "cache", "text", "its own steps"}, places
    assert not written & {"stacks", "images", "compiled", "mlflow", "ceilings", "versions", "other", ROOT.name}, places
    assert "secret False False" in log
    # Other writable folders are the container's own, and end with it.
    evil = [path.relative_to(tmp_path).parts[0:2] for path in tmp_path.rglob("evil")]
    assert sorted(evil) == [("cache", "evil"), ("cache", "text"), ("here", "runs")]
    assert not [place for place in (Path.home(), Path("/etc"), ROOT) if (place / "evil").exists()]


@pytest.mark.service
def test_what_is_wrong_in_a_container_fails_its_own_job(sweep: Launched) -> None:
    assert sweep.code == 1, sweep.output
    kind, message = failure(sweep, "stranger")
    assert kind == "bad_input"
    for words in ("user 12345:12345", "cannot write to the run folder", f"{os.getuid()}:{os.getgid()}"):
        assert words in message
    kind, message = failure(sweep, "promising")
    assert kind == "bad_input"
    assert "expected 1.0, found 2." in message
    kind, message = failure(sweep, "broken")
    assert kind == "error"
    assert "no Lightning for you" in (of(sweep, "broken") / "worker.log").read_text()
    assert podman.containers() == []


@pytest.mark.service
def test_images_that_cannot_run_are_refused_and_the_others_named(image: str, tmp_path: Path) -> None:
    podman.declare(tmp_path, "gone", {"image": "localhost:1/none:1"})
    podman.declare(tmp_path, "bare", {"mounts": []})
    podman.declare(tmp_path, "boxed")
    launched = answer(tmp_path, "-m", "--config-dir", str(tmp_path), "stack=gone,bare,boxed", *VGG)
    assert launched.code == 2, launched.output
    assert launched.folders == []
    for words in (
        "stack=gone: stack.container.image=localhost:1/none:1: is not here, and cannot be reached",
        "stack=bare: ",
        "exit code 127: the image has no such command",
        "These can run: stack=boxed",
    ):
        assert words in launched.output
    assert podman.containers() == []


Begin = Callable[..., Forked | subprocess.Popen[str]]


@pytest.fixture
def begin(image: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts a long training in a container, and returns as soon as this is there."""
    processes = []

    def begun(*more: str) -> Forked | subprocess.Popen[str]:
        podman.declare(tmp_path, "boxed")
        process = commands.begin(tmp_path, "--config-dir", str(tmp_path), "stack=boxed", *LONG, *more)
        processes.append(process)
        wait_for(lambda: any("-probe-" not in name for name in podman.containers()) or process.poll() is not None)
        assert process.poll() is None, collect(process, tmp_path).output
        return process

    yield begun
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def is_over(folder: Path) -> bool:
    """Whether nothing holds the run's lock, which the engine inherits with the worker."""
    try:
        with run_lock.hold_abandoned(folder):
            return True
    except run_lock.Running:
        return False


@pytest.mark.exhaustive
@pytest.mark.service
def test_a_launcher_that_is_killed_leaves_no_container(begin: Begin, tmp_path: Path) -> None:
    """Not even one that trains: nothing but the end of its standard input tells it."""
    process = begin()
    [in_journal] = tmp_path.glob("runs/*/journal.jsonl")
    wait_for(lambda: "run_start" in in_journal.read_text() or process.poll() is not None)
    assert "run_start" in in_journal.read_text(), process.communicate()
    process.kill()
    process.communicate()
    wait_for(lambda: podman.containers() == [])
    wait_for(lambda: is_over(in_journal.parent))


@pytest.mark.service
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)], ids=["SIGINT", "SIGTERM"]
)
def test_a_launcher_that_is_told_to_stop_ends_the_container(
    begin: Begin, tmp_path: Path, number: signal.Signals
) -> None:
    process = begin()
    process.send_signal(number)
    launched = collect(process, tmp_path)
    assert launched.code == 1, launched.output
    assert podman.containers() == []
    assert (launched.result["status"], launched.result["failure"]["kind"]) == ("killed", f"signal:{number.value}")


@pytest.mark.service
@pytest.mark.exhaustive  # a launcher that is told to stop ends it likewise
def test_a_container_that_takes_too_long_is_ended(begin: Begin, tmp_path: Path) -> None:
    launched = collect(begin("timeout_sec=4"), tmp_path)
    assert launched.code == 1, launched.output
    assert launched.result["failure"]["kind"] == "timeout"
    assert podman.containers() == []


@pytest.mark.service
def test_a_worker_that_is_killed_in_its_container_is_told_as_any_other(begin: Begin, tmp_path: Path) -> None:
    process = begin()
    [name] = podman.containers()
    subprocess.run(["podman", "exec", name, "/bin/busybox", "kill", "-9", "-1"], check=False)
    launched = collect(process, tmp_path)
    assert (launched.result["status"], launched.result["failure"]["kind"]) == ("killed", "signal:9"), launched.output
    assert podman.containers() == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from slurm_cluster.running()


@pytest.mark.exhaustive
@pytest.mark.service
def test_a_container_runs_on_a_node_and_one_that_cannot_is_refused_there(
    image: str, cluster: Cluster, tmp_path: Path
) -> None:
    podman.declare(tmp_path, "boxed")
    podman.declare(tmp_path, "gone", {"image": "localhost:1/none:1"})
    own = ("--config-dir", str(tmp_path), "stack=boxed,gone", "cluster=slurm", "cluster.exclusive=false")
    sweep = launch(tmp_path, "-m", *own, *VGG, "cluster.poll_sec=1", **cluster.env)
    assert sweep.code == 1, sweep.output
    boxed = of(sweep, "boxed")
    assert json.loads((boxed / "result.json").read_text())["status"] == "finished", sweep.output
    assert json.loads((boxed / "fingerprint.json").read_text())["host"]["container"] == "podman"
    kind, message = failure(sweep, "gone")
    assert kind == "bad_input"
    for words in ("node ", "stack=gone: stack.container.image=localhost:1/none:1 cannot be fetched"):
        assert words in message
    wait_for(lambda: podman.containers() == [])  # whoever follows the jobs has read the result before their ends
