"""The best and the worst software stack of a report's tables, against its comparisons and the journals."""

from __future__ import annotations

from tracking.audit.evidence import OF_TARGETS
from tracking.audit.setting_tables import Content, Rows, mean_of
from tracking.audit.trees import UNCHECKED, name_of


def rows(content: Content, workload: str, claimed: Rows) -> Rows:
    """The rows of the table that names these two; which of several is the best, the report's sentences say."""
    evidence, key = content.evidence, content.evidence.metric
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    due: Rows = {}
    for role in ("best", "worst"):
        name = claimed[role]["stack"]
        sample = evidence.sample(workload, by_name[name], key)
        due[role] = {"": role, "stack": name, "n": str(len(sample))}
        due[role][key] = mean_of(sample, 1.0, key)
        due[role] |= {"reached": evidence.ends(workload, by_name[name])} if key in OF_TARGETS else {}
    sides = [by_name[claimed["best"]["stack"]], by_name[claimed["worst"]["stack"]]]
    factors = [
        pair["factor"]
        for pair in content.report["comparisons"]
        if pair["workload"] == workload and pair["better"] in sides and pair["worse"] in sides
    ]
    due["gap"] = {"": "gap", "stack": f"{100 * (factors[0] - 1):.1f} %", "n": "", key: UNCHECKED}
    due["gap"] |= {"reached": ""} if key in OF_TARGETS else {}
    return due
