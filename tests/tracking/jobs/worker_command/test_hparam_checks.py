"""A hyperparameter that a model's constructor refuses is found from its source, before anything is imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import composed
from tracking.base import installation
from tracking.jobs.worker_command import check_workload
from tracking.jobs.worker_command.constructor import Constructor, Sources
from trainers.workload import load_workload

MODELS = [path.stem for path in sorted(Path("conf/model").glob("*.yaml")) if path.stem != "program"]
OWN = {
    "hp_own/__init__.py": "from .net import WORKLOAD\n",
    "hp_own/net.py": """
import torch_is_not_imported
from typing import Literal
from timetrial import Workload
from . import bases
class Net(bases.Base):
    pass
class Wide(bases.Base):
    def __init__(self, data, learning_rate, weight_decay, width: int, kind: Literal["a", "b"] = "a",
                 parts: list[float] | None = None, *, rate: float = 0.1, other: "Something" = None):
        pass
def make(data, learning_rate, weight_decay, depth=3):
    return None
class Open(bases.Base):
    def __init__(self, data, **hparams):
        pass
WORKLOAD = Workload(module=Wide, data={})
INHERITS = Workload(Net, {})
MADE = Workload(module=make, data={})
OPEN = Workload(module=Open, data={})
FAR = Workload(module=bases.Base, data={})
IN_TURN = Workload(module=CIRCLE, data={})
def read(path="."):
    return None
DATA = {"own": read}
IN_PLACE = Workload(make, {"own": read})
OF_A_NAME = Workload(module=make, data=DATA)
FEW = Workload(module=make, data={"other": read})
OTHERS = Workload(module=make, data={**DATA, "own": read})
if True:
    CHOSEN = Workload(module=make, data={})
""",
    "hp_own/bases.py": """
from .net import Net as Circle
class Base:
    def __init__(self, data, learning_rate, weight_decay, depth: int = 2):
        pass
""",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


def asked(name: str, hparams: dict[str, Any]) -> RunConfig:
    config = composed([f"model.workload=hp_own.net:{name}" if name != "WORKLOAD" else "model.workload=hp_own:WORKLOAD"])
    config.model.hparams = hparams
    return config


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "hparams", "words"),
    [
        ("WORKLOAD", {"width": 1, "depht": 2}, "depht: Wide takes no such option. Allowed: width, kind, parts, rate, "),
        ("WORKLOAD", {}, "width: Wide needs it, and it has no default. Next: give +model.hparams.width=VALUE"),
        ("WORKLOAD", {"width": "wide"}, "width=wide: is not what Wide takes. Allowed: int"),
        ("WORKLOAD", {"width": True}, "width=True: is not what Wide takes. Allowed: int"),
        ("WORKLOAD", {"width": 1, "kind": "c"}, "kind=c: is not what Wide takes. Allowed: Literal['a', 'b']"),
        ("WORKLOAD", {"width": 1, "parts": [1, "x"]}, "parts=[1, 'x']: is not what Wide takes. Allowed: list[float]"),
        ("WORKLOAD", {"width": 1, "rate": None}, "rate=None: is not what Wide takes. Allowed: float"),
        ("INHERITS", {"width": 1}, "width: Net takes no such option. Allowed: depth"),
        ("MADE", {"width": 1}, "width: make takes no such option. Allowed: depth"),
        ("FAR", {"width": 1}, "width: Base takes no such option. Allowed: depth"),
    ],
)
def test_one_that_the_constructor_refuses_is_named_with_what_is_allowed(
    name: str, hparams: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_workload(asked(name, hparams))
    assert str(refused.value).startswith(f"model.hparams.{words}")
    assert not [module for module in sys.modules if module.startswith("hp_own")]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("WORKLOAD", {"width": 1, "kind": "b", "parts": [1, 2.5], "rate": 1, "other": {"any": 1}}),
        ("WORKLOAD", {"width": 1, "parts": None}), ("MADE", {"depth": "any"}), ("OPEN", {"whatever": 1}),
        ("IN_TURN", {"whatever": 1}), ("CHOSEN", {"whatever": 1}),
    ],
)  # fmt: skip
def test_what_the_source_allows_or_does_not_say_is_left_to_the_worker(name: str, hparams: dict[str, Any]) -> None:
    check_workload(asked(name, hparams))


def like(read: Constructor | None, function: Callable[..., Any]) -> bool:
    """Whether a function was read from its source as Python has it."""
    signature = inspect.signature(function).parameters
    required = [name for name, each in signature.items() if each.default is each.empty]
    return read is not None and [each.name for each in read.parameters] == list(signature) and required == [
        each.name for each in read.parameters if each.required
    ]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_our_own_constructors_are_read_as_python_has_them(model: str) -> None:
    config = composed([f"model={model}", "gpus=1"])
    module, _, name = config.model.workload.partition(":")
    assert like(Sources().constructor(installation.module(module), name), load_workload(config).module)
    check_workload(config)
    config.model.hparams["no_such"] = 1
    with pytest.raises(ConfigError, match=r"^model\.hparams\.no_such: \w+ takes no such option\. Allowed: \w+"):
        check_workload(config)


@pytest.mark.parametrize("model", MODELS)
def test_our_own_datasets_are_read_as_python_has_them(model: str) -> None:
    config = composed([f"model={model}", "gpus=1"])
    module, _, name = config.model.workload.partition(":")
    for dataset, function in load_workload(config).data.items():
        assert like(Sources().dataset(installation.module(module), name, dataset), function), dataset
        taken = inspect.signature(function).parameters
        alien = next(key for key in vars(config.dataset) if key not in (*taken, "name"))
        config.dataset = DatasetConfig(name=dataset, **{alien: 1, **({"path": "."} if "path" in taken else {})})
        with pytest.raises(
            ConfigError, match=rf"^dataset\.{alien}=1: dataset={dataset} takes no .* dataset\.{alien}=null"
        ):
            check_workload(config)
        setattr(config.dataset, alien, None)
        check_workload(config)
        if "path" in taken and taken["path"].default is inspect.Parameter.empty:
            config.dataset.path = "x"
            with pytest.raises(ConfigError, match=r"^dataset\.path=x: .* nothing is there .* data_dir=FOLDER"):
                check_workload(config)
            config.stack.kind = "container"  # which has its own folders
            check_workload(config)
            config.stack.kind, config.dataset.path = "native", None
            with pytest.raises(ConfigError, match=rf"^dataset\.path=null: dataset={dataset} needs it"):
                check_workload(config)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["MADE", "FEW", "INHERITS", "OTHERS", "CHOSEN"])
def test_a_dataset_that_the_source_does_not_name_is_left_to_the_worker(name: str) -> None:
    config = asked(name, {"depth": 1})
    config.dataset = DatasetConfig(name="own", size=1)
    check_workload(config)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["IN_PLACE", "OF_A_NAME"])
def test_a_dataset_of_ones_own_is_read_in_place_and_by_name(name: str) -> None:
    config = asked(name, {"depth": 1})
    config.dataset = DatasetConfig(name="own", size=1)
    with pytest.raises(
        ConfigError, match=r"^dataset\.size=1: dataset=own takes no such option\. Allowed: path\. Next: "
    ):
        check_workload(config)
