"""The tables of the best stacks, against the report's own record of each, which is checked by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracking.analysis.audit.evidence import OF_TARGETS
from tracking.analysis.audit.setting_tables import Content, Rows, mean_of
from tracking.analysis.audit.trees import UNCHECKED, name_of


def due(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By a table's title, the record that it shows."""
    records = (record for record in report["best"] if isinstance(record, Mapping))
    of_stacks = [record for record in records if isinstance(record.get("among"), Mapping)]
    return {f"{', '.join([str(record.get('workload')), *_others(record)])}: best stack": record for record in of_stacks}


def _others(record: Mapping[str, Any]) -> list[str]:
    return [f"{axis}={value}" for axis, value in record["among"].items()]


def rows(content: Content, title: str) -> Rows:
    evidence, key, record = content.evidence, content.evidence.metric, due(content.report)[title]
    reached = key in OF_TARGETS
    shown: Rows = {}
    for role, setting in (("best mean", record["leader"]), ("next", record["next"])):
        sample = evidence.sample(record["workload"], setting, key)
        shown[role] = {"": role, "stack": name_of(setting), "n": str(len(sample)), key: mean_of(sample, 1.0, key)}
        shown[role] |= {"reached": evidence.ends(record["workload"], setting)} if reached else {}
    lead = "" if record["factor"] is None else f"{100 * (record['factor'] - 1):.1f} %"
    shown["lead"] = {"": "lead", "stack": lead, "n": "", key: UNCHECKED, **({"reached": ""} if reached else {})}
    return shown
