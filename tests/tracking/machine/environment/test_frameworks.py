"""The framework of a process, by the libraries that it has mapped, and of a Python, by its packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.machine.environment import fingerprint, libraries

# Lines of /proc/PID/maps of programs that had imported these frameworks.
TORCH = "7f-80 r-xp 0 fe:00 1 {}/torch/lib/libtorch_cpu.so"
JAX = "7f-80 r-xp 0 fe:00 2 {}/jaxlib/_jax.cpython-311-x86_64-linux-gnu.so"
TENSORFLOW = "7f-80 r-xp 0 fe:00 3 {}/tensorflow/libtensorflow_framework.so.2"
OTHER = "7f-80 r-xp 0 fe:00 4 {}/numpy/_core/_multiarray_umath.so\n7f-80 rw-p 0 00:00 0 [heap]"


def packages(tmp_path: Path, **versions: str) -> Path:
    folder = tmp_path / "site-packages"
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    return folder


def test_it_is_what_a_process_has_mapped_with_the_version_of_its_package(tmp_path: Path) -> None:
    folder = packages(tmp_path, torch="2.11.0", jax="0.11.2", tensorflow_cpu="2.20.0", keras="3.12.0")
    for pid, lines in {1: [OTHER, JAX], 2: [OTHER], 3: [TORCH, TENSORFLOW]}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text("\n".join(line.format(folder) for line in lines) + "\n")
    said = {pid: libraries.framework_words(libraries.frameworks_of([pid], tmp_path)) for pid in (1, 2, 3)}
    assert said == {1: "jax 0.11.2", 2: "", 3: "pytorch 2.11.0 + tensorflow 2.20.0"}
    assert libraries.framework_words(libraries.frameworks_of([1, 2, 3, 4], tmp_path)).startswith("jax 0.11.2 + pytorch")


def test_an_environment_in_a_folder_named_after_a_framework_is_no_framework(tmp_path: Path) -> None:
    folder = packages(tmp_path / "torch/.venv/lib/python3.12", jax="0.11.2", torch="2.11.0")
    for pid, lines in {1: [OTHER, JAX], 2: [OTHER], 3: [TORCH]}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text("\n".join(line.format(folder) for line in lines) + "\n")
    said = {pid: libraries.framework_words(libraries.frameworks_of([pid], tmp_path)) for pid in (1, 2, 3)}
    assert said == {1: "jax 0.11.2", 2: "", 3: "pytorch 2.11.0"}


def test_a_library_without_a_package_names_the_framework_alone() -> None:
    assert libraries.framework_words({"jax": "/no/such/folder"}) == "jax"


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"numpy": "2.0"}, None),
        ({"jax": "0.11.2", "jaxlib": "0.11.2", "flax": "0.12.0"}, "jax 0.11.2"),
        ({"keras": "3.12", "tf_nightly": "2.21"}, "tensorflow 2.21"),
        ({"mxnet-cu112": "1.9.1"}, "mxnet 1.9.1"),
        ({"torch": "2.11.0", "jax": "0.11.2"}, None),
    ],
)
def test_of_a_python_with_one_framework_it_is_that(installed: dict[str, str], expected: str | None) -> None:
    assert libraries.installed_framework(installed) == expected


def test_a_stack_without_torch_has_a_hash_by_its_framework() -> None:
    def stack_id(**software: str) -> str | None:
        return fingerprint.tags({"software": software, "host": {}}).get("env.stack_id")

    assert stack_id() is None
    assert stack_id(framework="jax 0.11.2") not in (None, stack_id(framework="jax 0.11.1"))
    assert stack_id(torch="2.11.0", framework="pytorch 2.11.0") == stack_id(torch="2.11.0"), "as older runs have it"
