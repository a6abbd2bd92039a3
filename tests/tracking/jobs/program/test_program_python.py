"""The Python of a program, as its command names it, and the message if it does not."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from conf.launch_options import ProgramConfig
from conf.schema import PROGRAM, ModelConfig, PrecisionConfig, RunConfig, StackConfig
from tracking.jobs.program import process, program_outcome, program_python
from tracking.machine.environment import fingerprint

STACKS = "/opt/stack/bin/python"


def config(command: str, kind: str = "native", **program: Any) -> RunConfig:
    asked = RunConfig(model=ModelConfig("mine", PROGRAM, 1), precision=PrecisionConfig("fp32", "32-true"))
    asked.program = ProgramConfig(command, **program)
    asked.gpus, asked.stack = 0, StackConfig("its", kind)
    return asked


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with a Python of the program's, and scripts that name it in several ways."""
    folder = tmp_path / "bin"
    folder.mkdir()
    firsts = {"named": f"#!{folder}/python3", "by_env": "#!/usr/bin/env -S python3 -u", "shell": "#!/bin/sh"}
    for name, first in {"python": "", "python3": "", **firsts}.items():
        (folder / name).write_text(f"{first}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python t.py", "python"),
        ("python3 t.py", "python3"),
        ("{bin}/python t.py", "python"),
        ("named --lr 1", "python3"),
        ("by_env", "python3"),
        ("bin/named", "python3"),
        ("shell", None),
        ("bash -c 'python t.py'", None),
        ("no-such-program", None),
    ],
)
def test_the_programs_python_is_the_one_that_its_command_names(
    bin_folder: Path, command: str, expected: str | None
) -> None:
    words = command.replace("{bin}", str(bin_folder))
    environ = {"PATH": f"{bin_folder}:/usr/bin:/bin"}
    asked = config(words, cwd=str(bin_folder.parent))
    own = str(bin_folder / expected) if expected else None
    assert program_python.of(asked, bin_folder, environ, None) == own
    # A stack of its own says what a command does not; and a container's is this very Python.
    assert program_python.of(asked, bin_folder, environ, STACKS) == (own or STACKS)
    contained = config(words, "container", cwd=str(bin_folder.parent))
    assert program_python.of(contained, bin_folder, environ, None) == (own or sys.executable)


def test_torchrun_is_the_stacks_and_so_is_the_first_folder_of_the_path(tmp_path: Path) -> None:
    asked = config("python t.py", "python", launch="torchrun")
    assert process.command(asked, tmp_path, STACKS)[0] == program_python.of(asked, tmp_path, {}, STACKS) == STACKS
    assert process.command(asked, tmp_path)[0] == program_python.of(asked, tmp_path, {}, None) == sys.executable
    given = process.environment(config("x", "python"), tmp_path, {"PATH": "/usr/bin"}, STACKS)
    assert given["PATH"] == "/opt/stack/bin:/usr/bin"
    assert process.environment(config("x"), tmp_path, {"PATH": "/usr/bin"})["PATH"] == "/usr/bin"


@pytest.mark.slow
def test_nothing_is_said_of_a_python_that_is_not_known_and_of_a_bare_one_its_version(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    environ = {**os.environ, "PYTHONPATH": ""}
    facts = program_python.fingerprint(config("bash -c x"), None, environ)
    assert not set(facts["software"]) & set(program_python.PYTHON_KEYS)
    assert {"env.cpu", "env.kernel"} <= set(fingerprint.tags(facts))
    assert fingerprint.requirements(facts) == ""
    facts = program_python.fingerprint(config("x"), bare, environ)
    assert set(facts["software"]) & set(program_python.PYTHON_KEYS) == {"python", "packages"}
    assert facts["software"]["packages"] == {}
    # A file that has Python's name and does not answer like Python is unknown too.
    assert shutil.which("true")
    (tmp_path / "python").symlink_to(str(shutil.which("true")))
    facts = program_python.fingerprint(config("x"), str(tmp_path / "python"), environ)
    assert not set(facts["software"]) & set(program_python.PYTHON_KEYS)


@pytest.mark.slow
def test_pytorch_is_imported_by_the_programs_python_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program_python.fingerprint(config("bash -c x"), None, os.environ)
    assert not (tmp_path / "imported").exists()
    program_python.fingerprint(config("x"), sys.executable, os.environ)
    assert (tmp_path / "imported").exists()


@pytest.mark.slow
def test_pytorch_is_imported_for_its_versions_once_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, imports = tmp_path / "packages" / "torch", tmp_path / "imports"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("cuda = None")
    code = f"from torch import version\n__version__ = '2.0.{{}}'\nprint(file=open({str(imports)!r}, 'a'))"
    (folder / "__init__.py").write_text(code.format(1))
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))

    def told(**variables: str) -> tuple[str, int]:
        """The version in the fingerprint, and the number of imports so far."""
        environ = {**os.environ, "PYTHONPATH": str(folder.parent), **variables}
        facts = program_python.fingerprint(config("x"), sys.executable, environ)
        return facts["software"]["torch"], len(imports.read_text())

    assert [told(), told()] == [("2.0.1", 1), ("2.0.1", 1)]
    # Of another length: Python knows changed sources by their size and their time in seconds.
    (folder / "__init__.py").write_text(code.format(10))
    (folder / "version.py").write_text("cuda = None  # of another installation")
    assert [told(), told()] == [("2.0.10", 2), ("2.0.10", 2)]
    assert told(LD_LIBRARY_PATH=str(tmp_path))[1] == 3, "other libraries may be loaded"
    (kept,) = (tmp_path / "cache" / "versions").iterdir()
    kept.write_text("{")
    assert told() == ("2.0.10", 4)


@pytest.mark.slow
def test_frameworks_are_those_that_the_programs_python_holds(tmp_path: Path) -> None:
    venv.create(tmp_path / "jax", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "jax").glob("lib/python*/site-packages")
    for name, version in {"jax": "0.7.1", "tensorflow-cpu": "2.20.0"}.items():
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    facts = program_python.fingerprint(config("x"), str(tmp_path / "jax/bin/python"), {**os.environ, "PYTHONPATH": ""})
    said = fingerprint.tags(facts)
    assert (said["env.jax"], said["env.tensorflow"]) == ("0.7.1", "2.20.0")
    assert not {"env.torch", "env.framework"} & set(said), "either may be what a program imports"
    assert fingerprint.requirements(facts) == "jax==0.7.1\ntensorflow-cpu==2.20.0\n"


def test_libraries_that_were_seen_loaded_have_the_versions_of_the_wheels_beside_them(tmp_path: Path) -> None:
    packages = tmp_path / "lib/python3.13/site-packages"
    paths = {}
    for name, version in {"cudnn": "9.5.1.17", "cuda-runtime": "12.9.79"}.items():
        short = {"cuda-runtime": "cudart"}.get(name, name)
        file = f"nvidia/{name}/lib/lib{short}.so.12"
        (packages / file).parent.mkdir(parents=True)
        (packages / file).touch()
        folder = packages / f"nvidia_{name.replace('-', '_')}_cu12-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-{name}-cu12\nVersion: {version}\n")
        (folder / "RECORD").write_text(f"{file},,\n")
        paths[short] = str(packages / file)
    seen = program_outcome.seen_facts({"software": {"python": "3.13.1"}}, paths, {})["software"]
    assert (seen["cudnn"], seen["cuda"], seen["python"]) == ("9.5.1.17", "12.9", "3.13.1")
    assert seen["loaded"] == "cudnn 9.5.1.17, cudart 12.9.79"
    with_torch = program_outcome.seen_facts({"software": {"torch": "2.9.1", "cuda": "12.8"}}, paths, {})["software"]
    assert with_torch["cuda"] == "12.8"
