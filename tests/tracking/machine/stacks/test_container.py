"""A stack in a container: judged by what its engine says, before anything is fetched or started."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.launch_options import ContainerConfig
from conf.schema import ConfigError, StackConfig
from tests.tracking.machine.stacks.fake_engine import ANSWER, IMAGE, FakeEngine
from tracking.cli.parser import main
from tracking.machine.environment import nvml
from tracking.machine.environment.nvml import Gpu
from tracking.machine.stacks import Mount, container, container_images, declared, image_of, judge, make_all, ready
from tracking.machine.stacks.declaration import expected

STACK = StackConfig("boxed", "container", container=ContainerConfig("podman", "example.org/trainer:1"))
H100 = Gpu(0, "NVIDIA H100", "GPU-1", 80 * 2**30, 9.0)


def boxed(**asked: Any) -> StackConfig:
    return replace(STACK, container=replace(STACK.container, **asked))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    fake = FakeEngine(tmp_path / "bin", {"image": IMAGE, "answer": ANSWER}).install("podman", "docker")
    monkeypatch.setenv("PATH", fake.path)
    monkeypatch.setattr(container, "_known", {})
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return fake


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (boxed(engine=None), ["stack.container.engine is missing"]),
        (boxed(image=None), ["stack.container.image is missing"]),
        (boxed(engine="lxc"), ["stack.container.engine=lxc", "docker, podman, apptainer, singularity, enroot"]),
        (boxed(user="me"), ["stack.container.user=me", "UID:GID"]),
        (boxed(shm="much"), ["stack.container.shm=much", "16g"]),
        (boxed(image="--privileged"), ["not an image's name"]),
        (boxed(mounts=["data"]), ["stack.container.mounts: data", "OUTSIDE[:INSIDE[:rw]]"]),
        (boxed(mounts=["/no/such/data"]), ["/no/such/data does not exist"]),
        (replace(STACK, requirements=["x"]), ["stack.requirements", "no effect with stack.kind=container"]),
        (replace(STACK, kind="native"), ["stack.container", "no effect with stack.kind=native"]),
    ],
)
def test_what_is_declared_wrongly_is_named(engine: FakeEngine, stack: StackConfig, words: list[str]) -> None:
    refused = judge(stack, []).error
    assert all(word in refused for word in words), refused


def test_an_engine_that_is_not_installed_is_named_with_those_that_are(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(engine.folder))
    refused = judge(boxed(engine="apptainer"), []).error
    assert "stack.container.engine=apptainer: is not installed" in refused
    assert "give an installed one: docker, podman" in refused


def test_an_engine_of_slurms_needs_a_job(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "trainer.sqsh").touch()
    stack = boxed(engine="pyxis", image=str(tmp_path / "trainer.sqsh"))
    monkeypatch.setenv("PATH", str(engine.folder))
    assert "stack.container.engine=pyxis: enroot is not installed" in judge(stack, []).error
    engine.install("enroot", "srun")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert "engine=pyxis: runs only in a Slurm job. Next: give cluster=slurm" in judge(stack, []).error
    planned = container.plan(stack, container_images.Image("/trainer.sqsh", None), "n", ["python3"])
    with pytest.raises(ConfigError, match="only in a Slurm job"):
        container.command(stack, planned)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    container.check_container(stack)
    assert container.command(stack, planned)[0] == "srun"


@pytest.mark.slow
def test_the_verdict_says_what_the_image_is_and_holds(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judge(STACK, [])
    assert verdict.error == ""
    assert verdict.needs == "an image of podman's, example.org/trainer:1: torch 2.6.0, CUDA 12.4"
    for words in ("podman 9.9.9", f"image {IMAGE['Digest']}", "Python 3.11.7", "Lightning 2.6.0"):
        assert words in verdict.facts
    monkeypatch.setattr(nvml, "driver_version", lambda: "470.1")
    assert "CUDA 12.4 of torch 2.6.0 needs driver 525" in judge(STACK, [H100]).error
    container._known.clear()
    engine.tell(answer={**ANSWER, "compat": True})
    assert judge(STACK, [H100]).error == "", "it brings a library of a newer driver"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"image": None, "reach": 1}, ["example.org/trainer:1", "cannot be reached", "connection refused"]),
        ({"image": {**IMAGE, "Architecture": "arm64"}}, ["built for arm64", "this machine is amd64"]),
        ({"image": {"no": "image"}}, ["example.org/trainer:1", "malformed"]),
        ({"version": 1}, ["podman does not answer", "Cannot connect to the daemon"]),
        ({"answer": None, "probe": 125}, ["exit code 125: the engine could not start the container", "fake cannot"]),
        ({"answer": None, "probe": 126}, ["exit code 126", "another architecture"]),
        ({"answer": None, "probe": 127}, ["exit code 127: the image has no such command", "stack.python"]),
        ({"answer": {**ANSWER, "packages": {**ANSWER["packages"], "torch": None}}}, ["lacks torch", "in the image"]),
        (
            {"answer": {**ANSWER, "packages": {**ANSWER["packages"], "pytorch-lightning": None}}},
            ["lacks pytorch-lightning", "in the image: pip install pytorch-lightning"],
        ),
        ({"answer": {**ANSWER, "python": "3.8.1"}}, ["is Python 3.8.1", "3.10 to 3.14"]),
    ],
)
def test_what_cannot_run_is_refused_in_the_engines_words(
    engine: FakeEngine, told: dict[str, Any], words: list[str]
) -> None:
    engine.tell(**told)
    refused = judge(STACK, []).error
    assert refused.startswith("stack=boxed: ")
    assert all(word in refused for word in words), refused
    assert "pull" not in [each[1] for each in engine.asked]


@pytest.mark.slow
def test_an_image_for_a_program_needs_a_python_and_none_of_our_packages(engine: FakeEngine) -> None:
    bare = {**ANSWER, "cuda": None, "packages": dict.fromkeys(ANSWER["packages"])}
    engine.tell(answer=bare)
    assert "lacks torch, pytorch-lightning, numpy, PyYAML" in judge(STACK, []).error
    verdict = judge(STACK, [H100], needed=())
    assert verdict.error == ""
    assert verdict.facts.endswith("Python 3.11.7")
    assert "lacks torch. Next: in the image: pip install torch" in judge(STACK, [], needed=("torch",)).error
    said: list[str] = []
    engine.tell(image=None, pull=IMAGE)
    make_all([STACK], said.append, {"boxed": ()})
    assert said[-1].endswith(f"Python 3.11.7, {IMAGE['Digest']}")
    container._known.clear()
    engine.tell(image=IMAGE, answer={**bare, "python": "3.8.1"})
    assert "is Python 3.8.1. Allowed: 3.10 to 3.14" in judge(STACK, [], needed=()).error


@pytest.mark.slow
def test_a_disk_without_room_is_refused_before_the_image_is_fetched(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Usage:
        free = 10**9

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage)
    assert judge(STACK, []).error == "", "it is here already"
    engine.tell(image=None, room=str(tmp_path / "storage"))
    refused = judge(STACK, []).error
    assert "up to 20 GB" in refused
    assert "1.0 GB left" in refused


@pytest.mark.slow
def test_an_image_is_fetched_once_and_then_only_inspected(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.tell(image=None, pull=IMAGE)
    assert not ready(STACK)
    assert "image not fetched yet, but can be" in judge(STACK, []).facts
    said: list[str] = []
    make_all([STACK], said.append)
    assert f"torch 2.6.0, {IMAGE['Digest']}" in said[-1]
    make_all([STACK], said.append)
    assert [each[1] for each in engine.asked].count("pull") == 1
    assert image_of(STACK).digest == IMAGE["Digest"]


@pytest.mark.slow
def test_an_image_that_cannot_be_fetched_names_the_stacks_that_can_run(engine: FakeEngine) -> None:
    engine.tell(image=None)
    with pytest.raises(ConfigError, match=r"cannot be fetched \(exit code 125: manifest unknown\).*stack=native"):
        make_all([STACK, StackConfig("native")], print)


def test_the_digest_is_the_registrys_or_the_images_own() -> None:
    known = {**IMAGE, "RepoDigests": ["a@sha256:1", "b@sha256:2"]}
    assert container_images.inspected("x:1", json.dumps([known])).digest == IMAGE["Digest"]
    assert container_images.inspected("x@sha256:2", json.dumps([known])).digest == "sha256:2"
    docker = {key: value for key, value in known.items() if key != "Digest"}
    assert container_images.inspected("x:1", json.dumps([docker])).digest == "sha256:1"
    assert container_images.inspected("x:1", json.dumps([{**docker, "RepoDigests": []}])).digest == "sha256:" + "1" * 64
    assert container_images.inspected("x:1", json.dumps([docker])).run == "sha256:" + "1" * 64, (
        "by what it is, not by its name"
    )


def test_a_file_is_known_by_its_content(engine: FakeEngine, tmp_path: Path) -> None:
    engine.install("apptainer")
    file = tmp_path / "trainer.sif"
    stack = boxed(engine="apptainer", image=str(file))
    with pytest.raises(ConfigError, match=r"trainer\.sif: no such file.*docker://NAME:TAG"):
        container_images.check_name(stack)
    file.write_bytes(b"squashed")
    first = container_images.find(stack)
    assert first is not None
    assert first.run == str(file)
    assert first.digest == "sha256:" + hashlib.sha256(b"squashed").hexdigest()
    assert container_images.find(stack) == first
    file.write_bytes(b"squashed anew")
    again = container_images.find(stack)
    assert again is not None
    assert again.digest != first.digest
    for key, value in (("shm", "16g"), ("user", "1:1")):
        with pytest.raises(ConfigError, match=f"stack.container.{key}: has no effect with apptainer"):
            container.check_container(boxed(engine="apptainer", image=str(file), **{key: value}))


def test_mounts_are_one_for_a_place_and_outer_ones_first(engine: FakeEngine, tmp_path: Path) -> None:
    asked = [Mount("/a/runs/1", "/a/runs/1", True), Mount("/a", "/a"), Mount("/a/runs/1", "/a/runs/1")]
    assert [each.words for each in container.ordered(asked)] == ["/a:/a:ro", "/a/runs/1:/a/runs/1"]
    image = container_images.Image("i", None)
    stack = boxed(mounts=[f"{tmp_path}:/data", f"{tmp_path}:/out:rw"])
    assert [each.words for each in container.plan(stack, image, "n", []).mounts] == [
        f"{tmp_path}:/data:ro",
        f"{tmp_path}:/out",
    ]
    with pytest.raises(ConfigError, match="a colon, a comma or a space"):
        container.plan(stack, image, "n", [], mounts=[Mount("/my data", "/my data")])


def test_the_torch_that_is_declared_must_be_in_the_image() -> None:
    assert expected(replace(STACK, torch="2.6.0", python="/opt/bin/python")) == {"torch": "2.6.0"}


@pytest.mark.slow
def test_the_commands_table_shows_it_and_fetches_ahead(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.tell(image=None, pull=IMAGE)
    (tmp_path / "mine/stack").mkdir(parents=True)
    text = "kind: container\ncontainer: {engine: podman, image: 'example.org/trainer:1'}\n"
    (tmp_path / "mine/stack/boxed.yaml").write_text(text)
    own = f"--config-dir={tmp_path / 'mine'}"
    assert main(["stacks", "boxed", own]) == 0
    assert "not fetched" in capsys.readouterr().out
    assert main(["stacks", "boxed", own, "--build"]) == 0
    assert "fetched in" in capsys.readouterr().out
    assert main(["stacks", "boxed", own, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["stacks"]
    assert (row["made"], row["size_bytes"], row["error"]) == (True, 5 * 10**9, "")


def test_the_documented_stack_is_one(engine: FakeEngine, tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "docs/stacks.md").read_text()
    [block] = [part for part in text.split("```") if part.startswith("yaml") and "kind: container" in part]
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/ours.yaml").write_text(block.removeprefix("yaml").replace("/data/imagenet", str(tmp_path)))
    container.check_container(declared([tmp_path])["ours"])
