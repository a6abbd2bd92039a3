"""Stacks of a sweep that cannot run here, while the jobs of other stacks run: `sweep.run_others`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.machine.environment import nvml
from tracking.machine.stacks.check import Judged, by_name, check_verdicts, judged_by, make_all
from tracking.machine.stacks.interpreter import needed_by, needs
from tracking.machine.stacks.verdict import Verdict, judge
from tracking.record import Journal, run_folder


class RefusedStacks:
    """The stacks that cannot run here, with reasons. Without `sweep.run_others` one of them refuses the launch.

    A stack may run on some of the chosen GPUs only, so that each job has its own verdict.
    """

    def __init__(self, config: RunConfig, gpus: Sequence[Any]) -> None:
        self._tolerates, self._gpus = config.sweep.run_others, gpus
        self._verdicts: dict[Judged, Verdict] = {}
        self._not_made: dict[str, str] = {}  # reasons by stack

    def judged(self, verdicts: Mapping[Judged, Verdict]) -> None:
        """Take the verdicts of all jobs. Raises ConfigError if one, or with `sweep.run_others` all, cannot run."""
        self._verdicts = dict(verdicts)
        if not self._tolerates or all(verdict.error for verdict in verdicts.values()):
            check_verdicts(by_name(verdicts.values()))

    def why(self, config: RunConfig) -> str:
        """Why a job cannot run here; empty if it can."""
        verdict = self._verdict(config)
        return (verdict.error if verdict else "") or self._not_made.get(config.stack.name, "")

    def make(self, configs: Sequence[RunConfig], say: Callable[[str], None]) -> None:
        """Make the environments of the other stacks. Those that cannot be made are refused too, as in `judged`."""
        needed = needs(configs)
        stacks = {config.stack.name: config.stack for config in configs if not self.why(config)}
        if not self._tolerates:
            make_all(stacks.values(), say, needed)
            return
        for name, stack in stacks.items():
            try:
                make_all([stack], say, needed)
            except ConfigError as error:
                self._not_made[name] = str(error)
        refused = {verdict.stack: verdict.error for verdict in self._verdicts.values() if verdict.error}
        if not stacks.keys() - self._not_made.keys():
            raise ConfigError("; ".join((refused | self._not_made).values()))
        for name, words in (refused | self._not_made).items():
            some = "cannot run on some of the chosen GPUs, and those jobs fail"
            which = some if name in stacks and name not in self._not_made else "cannot run here, and its jobs fail"
            say(f"stack {name} {which} (sweep.run_others=true): {words}")

    def is_idle(self, config: RunConfig) -> bool:
        """Whether a job would only fill the caches of a stack that cannot run here."""
        return config.warm_up and bool(self.why(config))

    def check(self, config: RunConfig, folder: Path) -> None:
        """Raise ConfigError for a job of a stack that cannot run here.

        Its run gets tags of the missing environment, so that a report can name the missing combination.
        """
        if not (why := self.why(config)):
            return
        log = Journal(folder / run_folder.JOURNAL)
        log.tags(self._tags(config))
        log.close()
        raise ConfigError(why)

    def _verdict(self, config: RunConfig) -> Verdict | None:
        """The verdict of a job; None where nodes judge. A job that a search added may have no verdict yet."""
        key = judged_by(config, self._gpus)
        if self._verdicts and key not in self._verdicts:
            chosen = config.chosen(self._gpus)
            self._verdicts[key] = judge(config.stack, chosen, resolve=False, needed=needed_by(config))
        return self._verdicts.get(key)

    def _tags(self, config: RunConfig) -> dict[str, str]:
        """The driver and GPUs of this machine, and the CUDA that the stack declares."""
        verdict, names = self._verdict(config), [gpu.name for gpu in config.chosen(self._gpus)]
        tags = {
            "env.driver": nvml.driver_version() if names else None,
            "env.gpu": nvml.names(names),
            "env.gpu_count": str(len(names)),
            "env.cuda": verdict.cuda if verdict else None,
        }
        return {key: value for key, value in tags.items() if value}
