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
from tracking.request import stored_config

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "configuration.md"
GROUPS = ("model", "dataset", "precision", "stack", "instance", "cluster", "study")  # They have files to choose from.
# A reader looks these keys up in the file itself.
IN_THE_FILE = ("name", "defaults", "workload", "requirements", "exclude_newer", "source")

HEADER = """\
<!-- Written by `python -m docs.generate_configuration` from conf/schema.py; change it there. -->
# Configuration

Every option of `launch.py`. Give it on the command line as `key=value`; `-m` and commas make a [sweep](sweeps.md).
A key that is not here is refused, and so are a value of another type and an option with two values. The command line
overrides a recipe, and a recipe overrides the model's YAML.

- `model`, `dataset`, `precision`, `stack`, `instance` and `cluster` are *groups*: `dataset=shapes` chooses the file
  `conf/dataset/shapes.yaml`, and `dataset.size=1000` then changes one key of it. A [study](studies.md) is added:
  `-m +study=scaling`.
- *Required* means that the group's YAML file has to give it.
- A recipe is what a model does otherwise on a dataset. It is taken by itself; `recipe=NAME` takes another one.
  One that is named after another model (`MODEL_WHAT`) is refused; one of your own that is named after none fits all.
  So it is with closed rules (`RULES_MODEL`).
- `launch.py --cfg job` prints the composed configuration and runs nothing.
- `--config-dir FOLDER` adds [YAML files of your own](adding-a-workload.md).
"""


def render() -> str:
    sections = [HEADER, "## Top level\n\n" + table(schema.RunConfig, "")]
    hints = typing.get_type_hints(schema.RunConfig)
    for field in dataclasses.fields(schema.RunConfig):
        if dataclasses.is_dataclass(hints[field.name]):
            cls = typing.cast(type, hints[field.name])
            text = f"## {field.name}\n\n{table(cls, field.name + '.')}"
            text += "\n" + choices(field.name) if field.name in GROUPS else ""
            sections.append(text + ("\n" + recipes() if field.name == "model" else ""))
    return "\n".join(sections)


def table(cls: type, prefix: str) -> str:
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for key, hint, default, comment in rows(cls, prefix):
        cells = (f"`{key}`", stored_config.type_name(hint), default, comment)
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
    texts = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            behind = re.sub(r"# type: ignore\S*", "", lines[node.end_lineno - 1][node.end_col_offset :])
            first = node.lineno - 1
            while lines[first - 1].strip().startswith("#"):
                first -= 1
            above = [line.strip().lstrip("# ") for line in lines[first : node.lineno - 1]]
            texts[node.target.id] = behind.strip().lstrip("# ") or " ".join(above)
    return texts


def choices(group: str) -> str:
    """The YAML files of a group, with the comment at the head of each."""
    lines = ["| choice | sets | meaning |", "|---|---|---|"]
    for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        sets = [
            f"`{key}: {plain(value)}`"
            for key, value in content.items()
            if key not in IN_THE_FILE and not isinstance(value, dict)
        ]
        added = "-m +" if group == "study" else ""  # No run is of a study unless it is asked for.
        lines.append(row(f"{added}{group}={path.stem}", path, [", ".join(chosen_along(content) + sets)]))
    return "\n".join(lines) + "\n"


def recipes() -> str:
    """The table of recipes: a model's values for one dataset, or for a name that users choose."""
    datasets = [path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml")]
    models = [path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")]
    lines = ["| recipe | meaning |", "|---|---|"]
    for path in sorted((ROOT / "conf" / "recipe").glob("*.yaml")):
        model = max((name for name in models if path.stem.startswith(f"{name}_")), key=len)
        dataset = path.stem.removeprefix(f"{model}_")
        other = f"dataset={dataset}" if dataset in datasets else f"recipe={path.stem}"
        lines.append(row(f"model={model} {other}", path, []))
    return "\n".join(lines) + "\n"


def chosen_along(content: dict[str, Any]) -> list[str]:
    """The choices of other groups that a file makes where the command line makes none."""
    entries = [item for entry in content.get("defaults", []) if isinstance(entry, dict) for item in entry.items()]
    chosen = [(re.fullmatch(r"override /(\w+)(?:@.*)?", key), value) for key, value in entries]
    return [f"`{match[1]}={value}` where none is given" for match, value in chosen if match]


def row(choice: str, path: Path, cells: list[str]) -> str:
    """A line of a table of files; its last cell is the comment at the file's head, less what only Hydra reads."""
    head = re.match(r"(#[^\n]*\n)*", path.read_text(encoding="utf-8"))
    said = [line.lstrip("# ") for line in head[0].splitlines()] if head else []
    meaning = " ".join(line for line in said if not line.startswith("@package"))
    meaning = re.sub(r"[<*]", r"\\\g<0>", meaning)  # Markdown would take them for its own.
    link = f"[`{choice}`](../{path.relative_to(ROOT).as_posix()})"
    return f"| {' | '.join([link, *map(escape, [*cells, meaning])])} |"


def escape(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
