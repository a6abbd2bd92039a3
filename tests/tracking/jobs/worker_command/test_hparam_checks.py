"""A hyperparameter that a model's constructor refuses is found from its source, before anything is imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from conf.schema import ConfigError, RunConfig
from tests.support.composing import composed
from tracking.base import installation
from tracking.jobs.worker_command import check_workload
from tracking.jobs.worker_command.constructor import Sources
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


@pytest.mark.parametrize("model", MODELS)
def test_our_own_constructors_are_read_as_python_has_them(model: str) -> None:
    config = composed([f"model={model}"])
    module, _, name = config.model.workload.partition(":")
    read = Sources().constructor(installation.module(module), name)
    assert read is not None
    signature = inspect.signature(load_workload(config).module)
    assert [parameter.name for parameter in read.parameters] == list(signature.parameters)
    required = [name for name, each in signature.parameters.items() if each.default is each.empty]
    assert [parameter.name for parameter in read.parameters if parameter.required] == required
    check_workload(config)
    config.model.hparams["no_such"] = 1
    with pytest.raises(ConfigError, match=r"^model\.hparams\.no_such: \w+ takes no such option\. Allowed: \w+"):
        check_workload(config)
