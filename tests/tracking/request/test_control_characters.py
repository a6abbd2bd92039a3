"""No option holds a control character, wherever it stands: it would write lines into scripts, logs and tables."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf.schema import ConfigError, RunConfig
from tests.support.commands import ROOT, launch
from tests.support.composing import composed
from tracking.request.checks import check_run
from tracking.request.name_checks import check_text
from tracking.request.refusal import options

EVIL = "x\ntouch /tmp/ran"
TEXTS = {key: hint for key, hint in options().items() if "str" in str(hint) or hint is Any or "Any" in str(hint)}


def holding(config: RunConfig, option: str, value: Any) -> RunConfig:
    *groups, name = option.split(".")
    section = config
    for group in groups:
        section = getattr(section, group)
    setattr(section, name, value)
    return config


def shapes(hint: Any) -> list[Any]:
    """The text in each place that a type has for one."""
    origin = typing.get_origin(hint)
    if origin is dict or hint is dict:
        return [{"key": EVIL}, {EVIL: "value"}, {"key": {"inner": [EVIL]}}]
    return [["--good", EVIL]] if origin is list else [EVIL]


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, hint in TEXTS.items() for value in shapes(hint)]
)
def test_every_text_is_refused_by_name_before_anything_is_done(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option}.*contains a control character"):
        check_run(holding(composed([]), option, value), [])


@pytest.mark.parametrize("sign", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e", "\udcff"])
def test_every_such_character_is_meant(sign: str) -> None:
    with pytest.raises(ConfigError, match=r"study\.name='a") as error:
        check_text("study.name", f"a{sign}b")
    assert str(error.value).isprintable()


def test_what_is_no_control_character_is_taken() -> None:
    check_text("", dataclasses.asdict(composed(["dataset.path='/dätä/$x #1'"])))


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_options_have_none(path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    check_text("", {key: value for key, value in (values or {}).items() if key != "hydra"})


@pytest.mark.slow
def test_a_launch_with_one_ends_before_a_folder_is_made(tmp_path: Path) -> None:
    refused = launch(
        tmp_path, "cluster=slurm", "gpus=0", f'cluster.partition="x\ntouch {tmp_path}/ran"', "dry_run=true"
    )
    assert refused.code == 2
    assert "cluster.partition='x\\ntouch" in refused.output
    assert list(tmp_path.iterdir()) == []
