"""Prices of cloud machines from conf/instance/prices.csv. Each row is a choice of `instance=`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "instance" / "prices.csv"


def prices() -> dict[str, dict[str, Any]]:
    """Fields of an InstanceConfig by name of the choice: USD for a node and hour, region, date and source."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _fields(row) for row in csv.DictReader(file)}


def num_gpus(name: str) -> int | None:
    """The number of GPUs of a node; None if the machine is not in the table."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return next((int(row["gpus"]) for row in csv.DictReader(file) if row["name"] == name), None)


def _fields(row: dict[str, str]) -> dict[str, Any]:
    texts = {key: row[key] for key in ("name", "region", "date", "source")}
    return {**texts, "price_per_hour": float(row["price_per_hour"])}
