"""A stack is judged before anything is built: whatever is wrong is named, with what else to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from conf.schema import ConfigError, RunConfig, StackConfig
from tracking.machine.environment import nvml
from tracking.machine.environment.nvml import Gpu
from tracking.machine.stacks import Verdict, check_verdicts, declared, judge
from tracking.machine.stacks.declaration import expected

H100 = Gpu(0, "NVIDIA H100", "GPU-1", 80 * 2**30, 9.0)
K80 = Gpu(0, "Tesla K80", "GPU-2", 12 * 2**30, 3.7)
B200 = Gpu(0, "NVIDIA B200", "GPU-3", 180 * 2**30, 10.0)
OLD = StackConfig("old", "uv", torch="2.6.0")
NEW = StackConfig("new", "uv", torch="2.11.0")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvml, "driver_version", lambda: "535.129.03")


def judged(stack: StackConfig, *gpus: Gpu) -> Verdict:
    return judge(stack, gpus, resolve=False)


def test_an_old_driver_runs_what_it_can_and_is_told_what_else_to_take() -> None:
    assert judged(OLD, H100).error == ""
    refused = judged(NEW, H100).error
    for words in ("stack=new", "CUDA 13.0", "needs driver 580", "535.129.03", "older CUDA", "cuda-compat"):
        assert words in refused
    assert judged(NEW).error == "", "a CPU needs no driver"


def test_the_default_environment_names_the_stack_to_take_on_an_old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracking.machine.stacks.verdict.native_cuda", lambda: "13.2")
    refused = judged(StackConfig("native"), H100).error
    assert "needs driver 580" in refused
    name = refused.partition("give stack=")[2].partition(",")[0]
    assert judged(declared()[name], H100).error == ""


def test_a_gpu_that_no_code_is_built_for_is_refused() -> None:
    assert "has no code for GPU 0 (Tesla K80, compute capability 3.7)" in judged(OLD, K80).error
    assert "570" in judged(OLD, B200).error  # the driver is asked first
    assert judged(StackConfig("mine", "uv", torch="2.6.0", index="http://wheels"), K80).error == "", "others' wheels"


@pytest.mark.parametrize(
    ("torch", "cuda", "is_refused"),
    [
        ("2.6.0", "12.4", True),
        ("2.6.0+cu124", "12.4", True),
        ("2.6.0+cu126", "12.6", False),
        ("2.6.0a0+git1", "12.4", False),
    ],
)
def test_only_the_default_wheels_have_the_code_of_the_table(
    monkeypatch: pytest.MonkeyPatch, torch: str, cuda: str, is_refused: bool
) -> None:
    monkeypatch.setattr("tracking.machine.stacks.verdict.metadata.version", lambda name: torch)
    monkeypatch.setattr("tracking.machine.stacks.verdict.native_cuda", lambda: cuda)
    assert ("has no code for GPU 0" in judged(StackConfig("native"), K80).error) == is_refused


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (StackConfig("x", "magic"), ["stack.kind=magic", "native, python, uv"]),
        (StackConfig("x", "native", torch="2.6.0"), ["stack.torch", "no effect with stack.kind=native"]),
        (StackConfig("x", "python", overrides=["a==1"], python="/p"), ["stack.overrides", "no effect"]),
        (StackConfig("x", "uv"), ["stack=x", "needs stack.torch"]),
        (StackConfig("x", "python"), ["stack=x", "needs stack.python"]),
        (StackConfig("x", "python", python="/no/such/python"), ["/no/such/python", "no such file"]),
        (StackConfig("x", "python", python="/bin/true"), ["/bin/true", "does not answer as a Python"]),
    ],
)
@pytest.mark.slow
def test_what_is_declared_wrongly_is_named(stack: StackConfig, words: list[str]) -> None:
    refused = judged(stack).error
    assert all(word in refused for word in words), refused


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"])
def test_a_stack_does_not_choose_the_gpus(name: str) -> None:
    refused = judged(StackConfig("x", "native", env={name: "3"})).error
    assert refused.startswith(f"stack.env.{name}=3: ")
    assert "Next: leave it out, and give gpus=[3]" in refused


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("no home directory")])
def test_a_path_that_cannot_be_read_is_a_verdict(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tracking.machine.stacks.verdict.interpreter.probe", fail)
    refused = judged(StackConfig("x", "python", python="/theirs/bin/python")).error
    assert refused == f"stack=x: {error}. Next: correct the paths that the stack names"


def test_an_environment_of_a_program_needs_no_torch_unless_torchrun_starts_it() -> None:
    stack = StackConfig("jax", "uv", requirements=["jax==0.7.1"])
    verdict = judge(stack, [H100], resolve=False, needed=())
    assert (verdict.error, verdict.cuda) == ("", None)
    assert "needs stack.torch" in judge(stack, [], resolve=False, needed=("torch",)).error


def test_a_disk_without_room_is_refused_with_where_to_make_some(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 10**9

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage)
    refused = judged(OLD).error
    assert "1.0 GB left" in refused
    assert "stacks --remove" in refused


def test_uv_that_is_not_there_is_told_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "pip install uv" in judge(OLD, []).error


def test_a_refused_stack_does_not_hide_those_that_can_run() -> None:
    configs = [RunConfig(stack=stack, gpus=1) for stack in (OLD, NEW)]
    verdicts = [judged(config.stack, H100) for config in configs]
    with pytest.raises(ConfigError, match=r"stack=new.*These can run: stack=old"):
        check_verdicts(verdicts)


@pytest.mark.slow
def test_a_python_without_lightning_is_told_what_to_install(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = tmp_path / "bare/bin/python"
    refused = judged(StackConfig("bare", "python", python=str(python))).error
    assert f"{python} -m pip install torch pytorch-lightning" in refused


def test_what_is_declared_is_what_a_worker_must_find() -> None:
    pins: dict[str, Any] = {
        "overrides": ["nvidia-cudnn-cu12==9.2.0.82"],
        "requirements": ["nvidia-nccl-cu12 == 2.22.3"],
    }
    versions = expected(StackConfig("x", "uv", python="3.12", torch="2.6.0", **pins, expect={"cuda": "12"}))
    assert versions == {"torch": "2.6.0", "python": "3.12", "cudnn": "9.2.0", "nccl": "2.22.3", "cuda": "12"}
    assert expected(StackConfig("native")) == {}


def test_every_shipped_stack_is_read_and_can_run_on_a_cpu() -> None:
    shipped = declared()
    assert {"native", "torch2_6", "torch2_9", "torch2_11", "torch2_15"} <= set(shipped)
    for name, stack in shipped.items():
        assert stack.name == name
        assert judged(stack).error == ""


def test_a_stack_s_file_keeps_its_texts_and_lists_are_lists(tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()
    file = tmp_path / "stack/mine.yaml"
    file.write_text("kind: uv\ntorch: 2.10\nexclude_newer: 2026-11-20\n")
    stack = declared([tmp_path])["mine"]
    assert (stack.torch, stack.exclude_newer) == ("2.10", "2026-11-20")
    file.write_text("kind: uv\ntorch: 2.10\nrequirements: torchvision\n")
    with pytest.raises(
        ConfigError, match=r"mine.yaml: requirements: torchvision: not a list. Next: write it as \[A, B"
    ):
        declared([tmp_path])


def test_a_users_stack_comes_before_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/torch2_6.yaml").write_text("kind: uv\ntorch: 2.6.1\n")
    assert declared([tmp_path])["torch2_6"] == StackConfig("torch2_6", "uv", torch="2.6.1")
    (tmp_path / "stack/odd.yaml").write_text("kind: uv\ntorhc: 2.6.1\n")
    with pytest.raises(ConfigError, match=r"odd\.yaml.*torhc"):
        declared([tmp_path])
