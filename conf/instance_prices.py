"""Prices of cloud machines (conf/instance/prices.csv), each a choice of `instance=` as the YAML files beside it are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "instance" / "prices.csv"


def prices() -> dict[str, dict[str, Any]]:
    """By name of the choice, the fields of an InstanceConfig: USD for a node and hour, where, when, and who says so."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _fields(row) for row in csv.DictReader(file)}


def num_gpus(name: str) -> int | None:
    """The GPUs of a node; None of a machine that is not in the table."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return next((int(row["gpus"]) for row in csv.DictReader(file) if row["name"] == name), None)


def _fields(row: dict[str, str]) -> dict[str, Any]:
    said = {key: row[key] for key in ("name", "region", "date", "source")}
    return {**said, "price_per_hour": float(row["price_per_hour"])}
