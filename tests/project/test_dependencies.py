"""What pyproject.toml declares is what the code imports, and a plain installation brings no more than a run needs."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, list[Any]] = PROJECT["dependency-groups"]
RUNTIME = ("conf", "tracking", "trainers", "timetrial", "launch.py")
OWN = {"benchmarks", "conf", "deploy", "docs", "hatch_build", "launch", "tests", "timetrial", "tracking", "trainers"}
READ = {"scikit-learn"}  # A file of its is read, and it is not imported, because that takes seconds.
BROUGHT = {"triton": "torch"}  # Its version is the one that this PyTorch was made with, on machines that have it.
WITH_MLFLOW = {"click", "cryptography", "packaging"}  # The tests of a server import these parts of one.
# NVIDIA DALI's module, and the engines that Go's rules are timed beside; the benchmarks say how they are installed.
APART = {"cudnn", "nvidia", "jax", "pgx", "pyspiel", "traceml_ai"}
# Of docs/examples: what the stack jax.yaml declares, and files beside the examples.
OF_EXAMPLES = {"flax", "optax", "images", "my_workload"}
OF_USERS = {"keras", "transformers"}  # A callback for one of them is imported by who has it.
TOOLS = {
    "flask-wtf",
    "mypy",
    "pytest-xdist",
    "ruff",
    "twine",
    "types-psutil",
    "types-pyyaml",
}  # These run, or are run by, others.


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match
    return normalized(match[0])


def declared(group: str) -> set[str]:
    """The distributions of a group and of those that it includes."""
    names: set[str] = set()
    for entry in GROUPS[group]:
        names |= {distribution(entry)} if isinstance(entry, str) else declared(entry["include-group"])
    return names


def imported(*parts: str) -> dict[str, str]:
    """The modules of others that files in these folders import anywhere, by top-level name; a file that does."""
    paths = [ROOT / part for part in parts]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    return {name: str(file) for file in files for name in others_of(file)}


@functools.cache
def others_of(file: Path) -> frozenset[str]:
    """The modules of others that a file imports anywhere, by top-level name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return frozenset(names - sys.stdlib_module_names - OWN)


def undeclared(modules: dict[str, str], names: set[str]) -> dict[str, str]:
    """The modules that no declared distribution provides."""
    providers = packages_distributions()
    return {
        module: file
        for module, file in modules.items()
        if not {normalized(name) for name in providers.get(module, [BROUGHT.get(module, module)])} & names
        and BROUGHT.get(module) not in names
    }


def provided(names: set[str]) -> dict[str, set[str]]:
    """The modules of each declared distribution."""
    modules: dict[str, set[str]] = {name: set() for name in names}
    for module, providers in packages_distributions().items():
        for provider in {normalized(name) for name in providers} & names:
            modules[provider].add(module)
    return modules


NEEDED = {distribution(requirement) for requirement in PROJECT["project"]["dependencies"]}
EXTRAS = {
    distribution(requirement)
    for requirements in PROJECT["project"]["optional-dependencies"].values()
    for requirement in requirements
}


def test_a_run_imports_only_what_is_declared() -> None:
    assert undeclared(imported(*RUNTIME), NEEDED | EXTRAS).keys() == OF_USERS


@pytest.mark.slow
def test_a_plain_installation_brings_nothing_that_no_run_imports() -> None:
    modules = imported(*RUNTIME)
    unused = {name for name, parts in provided(NEEDED).items() if not parts & modules.keys()}
    assert unused == READ
    assert 'find_spec("sklearn")' in Path(ROOT / "trainers/data/digits.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_tests_benchmarks_and_pages_import_only_what_is_declared() -> None:
    assert undeclared(imported("tests"), NEEDED | declared("dev") | declared("frameworks") | WITH_MLFLOW) == {}
    assert undeclared(imported("benchmarks"), NEEDED | declared("bench")).keys() == APART
    declared_for_pages = NEEDED | declared("dev") | declared("docs") | declared("frameworks")
    assert undeclared(imported("docs"), declared_for_pages).keys() == OF_EXAMPLES
    assert undeclared(imported("hatch_build.py"), set(map(distribution, PROJECT["build-system"]["requires"]))) == {}
    # It runs where neither this list nor a virtual environment may be; the guard runs inside of MLflow's server.
    assert {name for name, path in imported("deploy").items() if "/deploy/guard/" not in str(path)} == set()


@pytest.mark.slow
def test_a_group_holds_only_what_its_folders_import() -> None:
    modules = imported("tests", "benchmarks", "docs", "hatch_build.py")
    unused = {name for name, parts in provided(declared("dev")).items() if not parts & modules.keys()}
    assert unused <= TOOLS


def test_nothing_is_declared_twice_and_uv_installs_what_tests_need() -> None:
    names = [distribution(entry) for group in GROUPS.values() for entry in group if isinstance(entry, str)]
    assert len(names) == len(set(names))
    assert not NEEDED & set(names)
    assert declared("bench") <= declared("dev")  # uv installs this group by default.
    assert "default-groups" not in PROJECT["tool"]["uv"]
