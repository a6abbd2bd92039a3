"""Writes docs/configuration.md from conf/schema.py and the YAML files of conf/: python -m docs.generate_configuration.

The comments beside the schema's fields are the documentation; this only sets them in tables.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from conf import schema

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "configuration.md"
GROUPS = ("model", "dataset", "precision", "stack", "instance")  # those with YAML files to choose from

HEADER = """\
<!-- Written by `python -m docs.generate_configuration` from conf/schema.py; change it there. -->
# Configuration

Every option of `launch.py`. Give it on the command line as `key=value`; `-m` and commas make a sweep
([sweeps](sweeps.md)). A key that is not here is refused, and so is a value of another type.

- `model`, `dataset`, `precision`, `stack` and `instance` are *groups*: `precision=bf16` chooses the file
  `conf/precision/bf16.yaml`, and `precision.tf32=true` then changes one key of it.
- *Required* means that the group's YAML file has to give it.
- `launch.py --cfg job` prints the composed configuration and runs nothing; `dry_run=true` also checks it and prints the
  commands.
- `--config-dir FOLDER` adds a folder of your own YAML files to choose from ([your own
  workload](adding-a-workload.md)).
"""


def render() -> str:
    sections = [HEADER, "## Top level\n\n" + table(schema.RunConfig, "")]
    hints = typing.get_type_hints(schema.RunConfig)
    for field in dataclasses.fields(schema.RunConfig):
        if dataclasses.is_dataclass(hints[field.name]):
            cls = typing.cast(type, hints[field.name])
            text = f"## {field.name}\n\n{table(cls, field.name + '.')}"
            sections.append(text + ("\n" + choices(field.name) if field.name in GROUPS else ""))
    return "\n".join(sections)


def table(cls: type, prefix: str) -> str:
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for key, hint, default, comment in rows(cls, prefix):
        cells = (f"`{key}`", schema.type_name(hint), default, comment)
        lines.append(f"| {' | '.join(escape(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def rows(cls: type, prefix: str) -> Iterator[tuple[str, Any, str, str]]:
    """Key, type, default and meaning of each option; those of nested groups of the root have tables of their own."""
    hints, meanings = typing.get_type_hints(cls), comments(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if not dataclasses.is_dataclass(hint):
            yield prefix + field.name, hint, shown_default(field), meanings[field.name]
        elif prefix:
            yield from rows(typing.cast(type, hint), f"{prefix}{field.name}.")


def shown_default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value == schema.REQUIRED:
        return "required"
    return f"`{plain(value)}`"


def plain(value: Any) -> str:
    """A value as one writes it in YAML."""
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


def comments(cls: type) -> dict[str, str]:
    """The comment behind each field, or the comment lines right above it."""
    lines = inspect.getsource(cls).splitlines()
    body = typing.cast(ast.ClassDef, ast.parse(inspect.getsource(cls)).body[0]).body
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            behind = re.sub(r"# type: ignore\S*", "", lines[node.end_lineno - 1][node.end_col_offset :])
            first = node.lineno - 1
            while lines[first - 1].strip().startswith("#"):
                first -= 1
            above = [line.strip().lstrip("# ") for line in lines[first : node.lineno - 1]]
            found[node.target.id] = behind.strip().lstrip("# ") or " ".join(above)
    return found


def choices(group: str) -> str:
    """The YAML files of a group, with the comment at the head of each."""
    lines = ["| choice | sets | meaning |", "|---|---|---|"]
    for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        content = [(key, value) for key, value in yaml.safe_load(text).items() if key != "name"]
        head = re.match(r"(#[^\n]*\n)*", text)
        meaning = " ".join(line.lstrip("# ") for line in head[0].splitlines()) if head else ""
        sets = ", ".join(
            f"`{key}`" if isinstance(value, dict) else f"`{key}: {plain(value)}`" for key, value in content
        )
        lines.append(f"| [`{group}={path.stem}`](../conf/{group}/{path.name}) | {escape(sets)} | {escape(meaning)} |")
    return "\n".join(lines) + "\n"


def escape(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
