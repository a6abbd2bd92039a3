"""A run from its journal, config and result, to check a report: labels, targets, and how it ended.

How the run ended comes from result.json, since the journal of a killed run cannot say. The code is independent of the
report's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from conf.metric import HIGHER, LOWER
from tracking.analysis.audit.arithmetic import meets
from tracking.analysis.audit.journals.run_files import file_content, parsed
from tracking.base.quantities import metric_name
from tracking.request import stored_config

EVALUATED = "eval_accuracy"
STOPPED = {"timeout", "preempted", "cancelled", "search", "signal:1", "signal:2", "signal:15"}


class JournalRun:
    """The run in `folder`. Raises OSError without a journal.

    The config is read on first use.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / "journal.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        self.rows = [row for row in map(parsed, lines) if row]
        self._labels: dict[str, str] = {}

    def merged(self, kind: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for row in self.rows:
            if row["kind"] == kind:
                merged.update(row["values"])
        return merged

    @cached_property
    def params(self) -> dict[str, Any]:
        return self.merged("params")

    @cached_property
    def tags(self) -> dict[str, Any]:
        return self.merged("tags")

    @cached_property
    def info(self) -> dict[str, Any]:
        return file_content(self.folder / "run.json")

    @cached_property
    def ids(self) -> set[str]:
        """The ids that a report may have for it: its own, and MLflow's."""
        return {self.uid, str(file_content(self.folder / "mirror.json").get("run_id") or self.uid)}

    @property
    def uid(self) -> str:
        return str(self.info.get("uid"))

    @property
    def name(self) -> str:
        return str(self.info.get("name"))

    @property
    def experiment(self) -> str:
        return str(self.info.get("experiment"))

    @property
    def created_ms(self) -> int:
        return int(self.info.get("created_ms", 0))

    @property
    def lasted_sec(self) -> float:
        """The seconds from its submission to its last record or failure."""
        failed_ms = (self.result.get("failure") or {}).get("time_ms", 0)
        end_ms = max(failed_ms, self.created_ms, *(row["time_ms"] for row in self.rows), 0)
        return float(end_ms - self.created_ms) / 1e3

    @property
    def job(self) -> tuple[str, str] | None:
        """The job of this attempt: sweep and configuration; None outside of sweeps."""
        names = self.tags.get("sweep"), self.tags.get("config_hash")
        return (str(names[0]), str(names[1])) if all(names) else None

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config; {} if its launcher was killed before it wrote one."""
        return file_content(self.folder / "config.yaml", stored_config.loaded)

    @cached_property
    def paired_by(self) -> str:
        """The seed of its config if that has sweep.paired=true; else ""."""
        decided = (self.config.get("sweep") or {}).get("paired") is True
        return str(self.config.get("seed", "")) if decided else ""

    def times(self, key: str) -> list[float]:
        return [row["clock_sec"] for row in self.rows if row["kind"] == "event" and row["key"] == key]

    @cached_property
    def targets(self) -> dict[str, str]:
        """The target of each metric: "0.9" for at least that, "<=3.28" for at most."""
        names, values = (str(self.params.get(f"target_{part}", "")) for part in ("metric", "value"))
        return {name: value for name, value in zip(names.split(","), values.split(","), strict=True) if name}

    @cached_property
    def directions(self) -> dict[str, str]:
        """The direction of each metric, "lower" or "higher", from the config or a target."""
        model, program = ((self.config.get(part) or {}).get("metrics") or {} for part in ("model", "program"))
        directions = {name: value[-1] if isinstance(value, list) and value else value for name, value in model.items()}
        directions |= {metric_name(key): value[-1] for key, value in program.items() if isinstance(value, list)}
        directions |= {name: LOWER if value.startswith("<=") else HIGHER for name, value in self.targets.items()}
        return {name: direction for name, direction in directions.items() if direction in (LOWER, HIGHER)}

    @property
    def title(self) -> str:
        """The title of its workload: model, dataset and targets."""
        model, dataset = (self.params.get(key) or "?" for key in ("model", "dataset"))
        target = " and ".join(f"{name} {value}" for name, value in self.targets.items())
        return f"{model} on {dataset}" + (f" to {target}" if target else ", no target")

    @cached_property
    def configured(self) -> dict[str, str]:
        """The workload in config.yaml, by the params' names; empty without a config."""
        if not (self.folder / "config.yaml").exists():
            return {}
        model, dataset = (self.config.get(key) or {} for key in ("model", "dataset"))
        targets = dict((model.get("targets") or {}).get(dataset.get("name")) or {})
        if (target := self.config.get("target")) is not None:
            named = str(self.params.get("target_metric", "")).split(",")[0]
            targets[next(iter(targets or model.get("metrics") or [named]))] = target
        workload = {"model": model.get("name"), "dataset": dataset.get("name")}
        workload |= {"target_metric": ",".join(targets), "target_value": ",".join(map(_written, targets.values()))}
        return {key: str(value) for key, value in workload.items() if value}

    @cached_property
    def hit_row(self) -> int | None:
        """The index of the first row whose evaluation reached every target; None without one."""
        for place, row in enumerate(self.rows):
            if row["kind"] != "event" or row["key"] != EVALUATED or not self.targets:
                continue
            if all(meets(row["values"]["metrics"].get(name), target) for name, target in self.targets.items()):
                return place
        return None

    @cached_property
    def result(self) -> dict[str, Any]:
        """The content of result.json; empty while it runs."""
        return file_content(self.folder / "result.json")

    @cached_property
    def failure(self) -> str | None:
        """The kind of its failure; None without one."""
        kind: str | None = (self.result.get("failure") or {}).get("kind")
        return kind

    @property
    def failed(self) -> bool:
        return self.result.get("status", "finished") != "finished" or self.failure is not None

    @cached_property
    def diverged(self) -> bool:
        return self.failure == "nan" and bool(self.targets)

    @cached_property
    def uncounted(self) -> bool:
        """Whether its tags exclude it from every mean, as those of a warm-up do."""
        return "timetrial.uncounted" in self.tags

    @cached_property
    def searched(self) -> bool:
        """Whether a search decided with it."""
        return self.tags.get("timetrial.search") == "decide"

    @cached_property
    def stopped_short(self) -> bool:
        """Whether it spent its budget without reaching the target, or diverged."""
        if self.uncounted or not self.targets:
            return False
        return self.diverged or (self.ended and self.hit_row is None)

    @cached_property
    def stopped(self) -> bool:
        """Whether something from outside ended it before its target."""
        if self.uncounted or not self.targets or "resumed" in self.tags:
            return False
        return self.failure in STOPPED

    @cached_property
    def ended(self) -> bool:
        """Whether it finished by itself, in one attempt. result.json decides, since it can fail after evaluating."""
        return self.result.get("status") == "finished" and bool(self.times("run_stop")) and "resumed" not in self.tags

    @property
    def missed(self) -> bool:
        """Whether it trained to its end without reaching its target."""
        return self.ended and not self.uncounted and bool(self.targets) and self.hit_row is None

    def counts(self, with_missed: bool = False) -> bool:
        """Whether means count it: it ended, and reached its target if it has one (or `with_missed`)."""
        return self.ended and not self.uncounted and (with_missed or self.hit_row is not None or not self.targets)

    def why(self, with_missed: bool = False) -> str:
        """Why it is not in every mean; "" if it is."""
        if self.uncounted:
            return f"not counted: {self.tags['timetrial.uncounted']}"
        if not self.result:
            return "not ended"
        if self.failed:
            kind = "stopped" if self.failure in STOPPED else "failed"
            return "diverged: nan" if self.failure == "nan" else f"{kind}: {self.failure or 'unknown'}"
        if "resumed" in self.tags:
            return "interrupted and resumed"
        if not self.ended:
            return "its clock was not stopped"
        return "" if self.counts(with_missed) else "target missed"

    def belongs(self, setting: Mapping[str, str]) -> bool:
        return all(self.label(axis) == value for axis, value in setting.items())

    def label(self, axis: str) -> str:
        """Its value of an axis of the report."""
        if axis not in self._labels:
            self._labels[axis] = self._label(axis)
        return self._labels[axis]

    def _label(self, axis: str) -> str:
        short = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
        for name in (axis, short.get(axis, axis), "/".join(axis.replace("model.", "", 1).split("."))):
            for labels in (self.params, self.tags):
                if labels.get(name) not in (None, ""):
                    return str(labels[name])
        node: Any = self.config
        for part in axis.split("."):
            node = node.get(part, "(none)") if isinstance(node, dict) else "(none)"
        return str(node)


def _written(target: Any) -> str:
    """A target as in params: 0.9 or <=3.28."""
    text = str(target).strip()
    limit = f"{float(text.lstrip('<>=')):g}"
    return f"<={limit}" if text.startswith("<=") else limit
