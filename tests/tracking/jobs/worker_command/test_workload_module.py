"""A workload that is not there is missed before a worker starts, and nothing is imported for it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.composing import composed
from tracking.jobs.worker_command import check_workload

FILES = {
    "own_one.py": "raise RuntimeError('it is not to be imported')\nWORKLOAD = 1\n",
    "own_package/__init__.py": "raise RuntimeError('it is not to be imported')\n",
    "own_package/part.py": "from elsewhere import WORKLOAD\n",
    "own_star.py": "from elsewhere import *\n",
    "own_lazy/__init__.py": "import sys\nsys.modules[__name__ + '.part'] = object()\n",
    "own_tight_star.py": "from elsewhere import*\n",
    "own_namespace/__init__.py": "__import__('pkg_resources').declare_namespace(__name__)\n",
    "own_finder/__init__.py": "import sys\nsys.meta_path.append(object())\n",
    "own_finder/inner/__init__.py": "",
    "own_vars.py": "vars().update({'WORK' + 'LOAD': 1})\n",
    "own_folder/inner/deep/part.py": "WORKLOAD = 1\n",
    "own_damaged.py": "# of no encoding: \xe9\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="latin-1")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("own_two:WORKLOAD", "module own_two does not exist"),
        ("own_one:WORK", "own_one has no WORK"),
        ("own_one.part:WORKLOAD", "module own_one.part does not exist"),
        ("own_package:WORKLOAD", "own_package has no WORKLOAD"),
        ("own_package.other:WORKLOAD", "module own_package.other does not exist"),
        ("own_package.part:WORKLOADS", "own_package.part has no WORKLOADS"),
        ("own_folder:WORKLOAD", "own_folder has no WORKLOAD"),
        ("trainers.models.vgg:WORKLOADS", "trainers.models.vgg has no WORKLOADS"),
    ],
)
def test_one_that_is_missing_is_refused(workload: str, words: str) -> None:
    config = composed([f"model.workload={workload}"])
    with pytest.raises(ConfigError) as refused:
        check_workload(config)
    assert f"model.workload={workload}: {words}. Next: give package.module:NAME" in str(refused.value)
    assert not [name for name in sys.modules if name.startswith("own_")]
    for elsewhere in ("stack=torch2_9", "cluster=slurm", "+stack.env.PYTHONPATH=/theirs"):
        check_workload(composed([f"model.workload={workload}", elsewhere]))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "workload",
    [
        "own_one:WORKLOAD", "own_package.part:WORKLOAD", "own_star:WORKLOAD", "own_lazy.part:WORKLOAD",
        "own_folder.inner.deep.part:WORKLOAD", "own_damaged:WORKLOAD", "trainers.models.vgg:WORKLOAD", "math:WORKLOAD",
        "own_tight_star:WORKLOAD", "own_namespace.part:WORKLOAD", "own_finder.inner.part:WORKLOAD", "own_vars:WORKLOAD",
    ],
)  # fmt: skip
def test_one_that_is_there_or_may_be_is_left_to_the_worker(workload: str) -> None:
    check_workload(composed([f"model.workload={workload}"]))
    assert not [name for name in sys.modules if name.startswith("own_")]


def test_a_program_has_none() -> None:
    check_workload(composed(["model=program", "program.command=true"]))
