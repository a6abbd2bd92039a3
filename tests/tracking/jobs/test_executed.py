"""The question of trust names all that a configuration has executed: every option is known, one way or the other."""

from __future__ import annotations

import dataclasses

import pytest

from conf.schema import RunConfig
from tracking.jobs.ownership import EXECUTED, HARMLESS, would_run
from tracking.request.refusal import options

VALUES = {"list": ["--first x", "second"], "dict": {"name": "first", "other": "second"}}


def test_every_option_is_in_one_of_the_tables() -> None:
    assert sorted([*EXECUTED, *HARMLESS]) == sorted(options())


@pytest.mark.parametrize("option", EXECUTED)
def test_what_is_executed_is_named_with_its_value(option: str) -> None:
    config, (*groups, name) = RunConfig(), option.split(".")
    section = config
    for group in groups:
        section = getattr(section, group)
    value = VALUES.get(type(getattr(section, name)).__name__, "touch \x1b]0;/tmp/ran")
    setattr(section, name, value)
    phrases = would_run(config)
    assert len(phrases) == (len(value) if not isinstance(value, str) else 1)
    assert all(phrase.startswith(EXECUTED[option]) and phrase.isprintable() for phrase in phrases)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
        assert any(repr(part) in phrase for phrase in phrases)


def test_a_default_executes_nothing() -> None:
    assert would_run(dataclasses.replace(RunConfig(), seed=7)) == []
