"""Stacks of a sweep that cannot run here, while the jobs of other stacks run: `sweep.run_others`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.machine.environment import nvml
from tracking.machine.stacks.check import check_verdicts, make_all
from tracking.machine.stacks.interpreter import needs
from tracking.machine.stacks.verdict import Verdict
from tracking.record import Journal, run_folder


class RefusedStacks:
    """The stacks that cannot run here, with reasons. Without `sweep.run_others` one of them refuses the launch."""

    def __init__(self, config: RunConfig, gpus: Sequence[Any]) -> None:
        self._tolerates, self._gpus = config.sweep.run_others, gpus
        self._verdicts: dict[str, Verdict] = {}
        self.why: dict[str, str] = {}  # reasons by stack

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """Take the verdicts of all stacks. Raises ConfigError if one, or with `sweep.run_others` all, cannot run."""
        self._verdicts = {verdict.stack: verdict for verdict in verdicts}
        self.why = {verdict.stack: verdict.error for verdict in verdicts if verdict.error}
        if not self._tolerates or len(self.why) == len(self._verdicts):
            check_verdicts(verdicts)

    def make(self, configs: Sequence[RunConfig], say: Callable[[str], None]) -> None:
        """Make the environments of the other stacks. Those that cannot be made are refused too, as in `judged`."""
        stacks = {config.stack.name: config.stack for config in configs if config.stack.name not in self.why}
        needed = needs(configs)
        if not self._tolerates:
            make_all(stacks.values(), say, needed)
            return
        for name, stack in stacks.items():
            try:
                make_all([stack], say, needed)
            except ConfigError as error:
                self.why[name] = str(error)
        if not stacks.keys() - self.why.keys():
            raise ConfigError("; ".join(self.why.values()))
        for name, words in self.why.items():
            say(f"stack {name} cannot run here, and its jobs fail (sweep.run_others=true): {words}")

    def is_idle(self, config: RunConfig) -> bool:
        """Whether a job would only fill the caches of a stack that cannot run here."""
        return config.warm_up and config.stack.name in self.why

    def check(self, config: RunConfig, folder: Path) -> None:
        """Raise ConfigError for a job of a stack that cannot run here.

        Its run gets tags of the missing environment, so that a report can name the missing combination.
        """
        name = config.stack.name
        if name not in self.why:
            return
        log = Journal(folder / run_folder.JOURNAL)
        log.tags(self._tags(config))
        log.close()
        raise ConfigError(self.why[name])

    def _tags(self, config: RunConfig) -> dict[str, str]:
        """The driver and GPUs of this machine, and the CUDA that the stack declares."""
        verdict, names = self._verdicts.get(config.stack.name), [gpu.name for gpu in config.chosen(self._gpus)]
        tags = {
            "env.driver": nvml.driver_version() if names else None,
            "env.gpu": " + ".join(sorted(set(names))) or "none",
            "env.gpu_count": str(len(names)),
            "env.cuda": verdict.cuda if verdict else None,
        }
        return {key: value for key, value in tags.items() if value}
