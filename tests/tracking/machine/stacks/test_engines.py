"""The exact command lines of each container engine: how it starts a container, on which GPUs, and how it ends it."""

from __future__ import annotations

import os
import re

import pytest

from tracking.machine.stacks.engines import DOCKER, ENGINES, ENROOT, PODMAN, Mount, Plan, enroot_uri

USER = f"{os.getuid()}:{os.getgid()}"
CPU = Plan("sha256:1f", "timetrial-7", ["python3", "-m", "worker"], {"OMP_NUM_THREADS": "2"}, [Mount("/code", "/code")])
GPU = Plan("sha256:1f", "timetrial-7", ["python3"], {}, [Mount("/runs", "/runs", True)], ["GPU-a", "GPU-b"])


def words(engine: str, plan: Plan) -> str:
    return " ".join(ENGINES[engine].run(plan))


def test_docker_and_podman_run_a_named_container_that_goes_when_it_ends() -> None:
    shared = (
        "run --rm --interactive --name timetrial-7 --pull never --log-driver none --network host --user"
        f" {USER} --ipc host --volume /code:/code:ro --env OMP_NUM_THREADS=2 --env NVIDIA_VISIBLE_DEVICES=void"
    )
    command = "--entrypoint python3 sha256:1f -m worker"
    users = "--userns keep-id " if os.getuid() else ""
    assert words("docker", CPU) == f"{shared} {command}"
    assert words("podman", CPU) == f"{shared} --security-opt label=disable {users}{command}"


def test_gpus_are_given_by_uuid() -> None:
    asked = DOCKER.run(GPU)
    assert asked[asked.index("--gpus") + 1] == '"device=GPU-a,GPU-b"', "with docker's own quotes around the comma"
    assert "--device nvidia.com/gpu=GPU-a --device nvidia.com/gpu=GPU-b" in words("podman", GPU)
    for engine in ("docker", "podman"):
        assert "--ulimit memlock=-1 --ulimit stack=67108864" in words(engine, GPU)
        assert "VISIBLE_DEVICES" not in words(engine, GPU)
        assert "--volume /runs:/runs " in words(engine, GPU)
    assert "--env NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b --env NVIDIA_DRIVER_CAPABILITIES=compute,utility" in words(
        "enroot", GPU
    )
    for engine in ("apptainer", "singularity"):
        assert words(engine, GPU) == "exec --cleanenv --no-home --nv --bind /runs:/runs sha256:1f python3"
        assert ENGINES[engine].variables(GPU) == {"SINGULARITYENV_NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}


def test_without_gpus_none_is_shown() -> None:
    assert "--nv" not in words("apptainer", CPU)
    assert ENGINES["apptainer"].variables(CPU) == {
        "SINGULARITYENV_OMP_NUM_THREADS": "2",
        "SINGULARITYENV_NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert words("enroot", CPU) == (
        "start --mount /code:/code:x-create=auto,rbind,ro --env OMP_NUM_THREADS=2 --env NVIDIA_VISIBLE_DEVICES=void"
        " --env NVIDIA_DRIVER_CAPABILITIES=compute,utility sha256:1f python3 -m worker"
    )
    assert "rbind,rw" in words("enroot", GPU)


def test_pyxis_runs_a_step_of_the_job_on_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "b")
    names = "OMP_NUM_THREADS,NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES"
    assert ENGINES["pyxis"].programs == ("enroot", "srun")
    assert words("pyxis", CPU) == (
        f"--overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=b --cpu-bind=none --export={names}"
        f" --no-container-mount-home --no-container-entrypoint --container-env={names}"
        " --container-mounts=/code:/code:ro --container-image=sha256:1f python3 -m worker"
    )
    assert ENGINES["pyxis"].variables(CPU)["OMP_NUM_THREADS"] == "2", "in srun's environment, for values with commas"
    assert ENGINES["pyxis"].variables(GPU)["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert "/runs:/runs:rw" in words("pyxis", GPU)


def test_shared_memory_user_and_options_are_the_stacks() -> None:
    plan = Plan("i", "n", ["python3"], shm="16g", user="1000:100", options=["--runtime", "runc"])
    for engine in ("docker", "podman"):
        assert "--user 1000:100 --shm-size 16g" in words(engine, plan)
        assert "--ipc" not in words(engine, plan)
    for engine in ENGINES:
        assert "--runtime runc" in words(engine, plan), "before the image, so that they are the engine's"
        assert re.search(r"--runtime runc\b.*[ =]i( |$)", words(engine, plan))


@pytest.mark.parametrize(
    ("engine", "ending"), [("docker", "rm --force n"), ("podman", "rm --force --ignore --time 0 n")]
)
def test_a_container_is_ended_by_its_name(engine: str, ending: str) -> None:
    remove = ENGINES[engine].remove
    assert remove is not None
    assert " ".join(remove("n")) == ending
    assert ENGINES["apptainer"].remove is ENROOT.remove is None, "whose processes are the launcher's own"


def test_images_are_looked_for_and_fetched_by_name() -> None:
    asked = {name: " ".join(engine.pull("x/y:1", "/cache/file")) for name, engine in ENGINES.items()}
    assert asked["docker"] == asked["podman"] == "pull --quiet x/y:1"
    assert asked["apptainer"] == asked["singularity"] == "pull /cache/file x/y:1"
    assert asked["enroot"] == asked["pyxis"] == "import --output /cache/file docker://x/y:1"
    for engine in (DOCKER, PODMAN):
        assert engine.reach is not None
        assert " ".join(engine.reach("x/y:1")) == "manifest inspect x/y:1"


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        ("docker://pytorch/pytorch:2.6.0", "docker://pytorch/pytorch:2.6.0"),
        ("docker://docker.io/pytorch/pytorch:2.6.0", "docker://pytorch/pytorch:2.6.0"),
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "docker://nvcr.io#nvidia/pytorch:24.01-py3"),
        ("docker://localhost:5000/mine:1", "docker://localhost:5000#mine:1"),
        ("docker://ubuntu", "docker://ubuntu"),
    ],
)
def test_enroot_writes_registries_its_own_way(image: str, uri: str) -> None:
    assert enroot_uri(image) == uri
