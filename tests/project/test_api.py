"""The public names: listed, documented and typed; what docs show imports nothing else; old paths warn."""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
from pathlib import Path

import pytest

import timetrial
from tests.support.commands import ROOT
from timetrial.public_names import MODULES
from tracking.base.old_paths import OLD_PATHS

OURS = ("conf", "launch", "timetrial", "tracking", "trainers")
# Every import that docs or the example ever showed, as it stood there.
ONCE_SHOWN = """
from trainers.confusion import ConfusionCounter, confusion_cells
from trainers.data.digits import digits
from trainers.data.images import ImageData
from trainers.loop.load_model import load_model
from trainers.ops.confusion import ConfusionCounter, confusion_cells
from trainers.workload import Batch, ClassificationData, TrialModule, Workload
from timetrial.trainers.data.digits import digits
from timetrial.trainers.ops.confusion import ConfusionCounter, confusion_cells
from timetrial.trainers.workload import Batch, ClassificationData, TrialModule, Workload
from trainers.data.crop import SquareView
from trainers.data.detection import coco
from trainers.data.image_folder import imagenet
from conf.schema import ConfigError
"""
STAYS = "from tracking.lightning import TimeTrial, time_trial"


def shown() -> list[tuple[str, str]]:
    """File and source of each Python that docs show, examples included."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [(page.name, block) for page in pages
              for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)]  # fmt: skip
    return blocks + [(path.name, path.read_text()) for path in sorted((ROOT / "docs/examples").rglob("*.py"))]


def test_docs_and_examples_import_public_names_alone() -> None:
    names = set()
    for page, source in shown():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.split(".")[0] in OURS], page
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS:
                assert node.module == "timetrial", f"{page}: {ast.unparse(node)}"
                names |= {alias.name for alias in node.names}
    assert {"TimeTrial", "TrialModule", "digits", "load_model"} <= names <= {*MODULES}


NEEDS = {"HuggingFaceTimeTrial": "transformers", "KerasTimeTrial": "keras"}  # what only their users have


def test_each_public_name_is_there_documented_and_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # Keras would import TensorFlow, which need not be there.
    page = (ROOT / "docs/api.md").read_text()
    table = page.partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`(?=[^|\n]*\|[^|\n]*\|$)", table, re.MULTILINE)) >= {*MODULES}
    tree = ast.parse((ROOT / "timetrial/__init__.py").read_text())
    [typed] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == MODULES
    assert dir(timetrial) == sorted(MODULES)
    assert (ROOT / "timetrial/py.typed").exists()
    for name in MODULES:
        if importlib.util.find_spec(NEEDS.get(name, "torch")) is not None:
            assert getattr(timetrial, name)
    with pytest.raises(AttributeError, match="It has: TimeTrial, time_trial"):
        timetrial.Unknown  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize("line", ONCE_SHOWN.strip().splitlines())
def test_an_import_that_docs_once_showed_works_and_warns_others_code(line: str) -> None:
    bound: dict[str, object] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(line, "/home/user/their_model.py", "exec"), bound)
    names = line.partition(" import ")[2].split(", ")
    assert all(bound[name] is getattr(timetrial, name) for name in names)
    assert [(warning.category, warning.filename) for warning in caught] == [
        (DeprecationWarning, "/home/user/their_model.py")
    ] * len(names)
    assert f"removed in 0.3. Next: write `from timetrial import {names[0]}`" in str(caught[0].message)


@pytest.mark.parametrize(
    "line", [STAYS, "from timetrial import digits", "import trainers.workload; trainers.workload.Workload"]
)
def test_other_imports_warn_nobody(line: str) -> None:
    exec(compile(line, "/home/user/their_model.py", "exec"), {})  # A warning would be an error.


def test_our_own_imports_of_these_modules_warn_nobody() -> None:
    for line in ONCE_SHOWN.strip().splitlines():
        exec(compile(line, str(ROOT / "trainers/models/theirs.py"), "exec"), {})


def test_the_table_of_old_paths_holds_public_names_that_were_shown() -> None:
    names = {name for group in OLD_PATHS.values() for name in group}
    assert names <= {*MODULES}
    assert {line.split()[1].removeprefix("timetrial.") for line in ONCE_SHOWN.strip().splitlines()} == {*OLD_PATHS}
    watching = [path for path in (ROOT / "trainers").rglob("*.py") if "old_paths.watch(__name__)" in path.read_text()]
    modules = {path.relative_to(ROOT).as_posix() for path in watching}
    paths = {Path(*module.split(".")) for module in OLD_PATHS if module != "conf.schema"}
    assert modules == {f"{path}.py" if (ROOT / f"{path}.py").exists() else f"{path}/__init__.py" for path in paths}
