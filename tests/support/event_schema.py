"""The schema of the events of `launch.py --json`, and a strict validator by it."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema

from tests.support.commands import ROOT

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/events.schema.json").read_text())


def strict() -> jsonschema.Draft202012Validator:
    """The schema without room for fields that it does not name; users' copies have it, for fields to come."""
    closed = copy.deepcopy(SCHEMA)
    for part in (closed, *closed["$defs"].values()):
        if "properties" in part:
            part["unevaluatedProperties"] = False
    answer = closed["$defs"]["answer"]
    del answer["unevaluatedProperties"]  # An event has more fields than the answer by one objective.
    second = closed["allOf"][-2]["then"]["properties"]["second"]["anyOf"][0]
    second["unevaluatedProperties"] = False
    return jsonschema.Draft202012Validator(closed)


def validate(event: dict[str, Any]) -> None:
    """Raise for an event that differs from the schema, or has a field that it does not name."""
    strict().validate(event)


def fields_of(node: Any) -> set[str]:
    """The names of all fields of an object, also those within others."""
    if isinstance(node, list):
        return {name for each in node for name in fields_of(each)}
    return {*node, *(name for each in node.values() for name in fields_of(each))} if isinstance(node, dict) else set()
