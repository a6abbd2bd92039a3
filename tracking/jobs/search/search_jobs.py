"""The jobs of a search: ended jobs choose which ones run next."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import Answer, Axis, SearchTrial, answers, propose, runs_to_first_look
from tracking.base.number_text import counted
from tracking.jobs.plan import Job, sweep, sweep_summary
from tracking.jobs.search import answer_record, answer_words, fronts, setting_means, trace_file
from tracking.jobs.search.axes import first_that_fits
from tracking.jobs.search.search_rules import rules_of
from tracking.jobs.search.trial_job import command_line, job_of_trial, points, seconds_of, set_jobs_at_once, trials_of
from tracking.record import Result, documents, failures
from tracking.request.search_options import Budget, budget_of, objectives_of, setting_overrides

MOST_TRIES = 2  # further tries of a lost run, within one launch
SPENT = "The budget is spent: lost runs are not repeated; give a larger search.budget with sweep.resume."


class SearchJobs:
    """The jobs of one search.

    `base` is the request with its overrides. `make` composes and checks a config from overrides. `jobs` are the jobs so
    far. `refused` are trials that could not be run, each with the number of jobs before it. `num_gpus` are visible.
    """

    def __init__(
        self, base: Job, axes: Sequence[Axis], make: Callable[[list[str]], RunConfig], jobs: Sequence[Job] = (),
        refused: Sequence[tuple[int, SearchTrial]] = (), num_gpus: int = 0,
    ) -> None:  # fmt: skip
        self._base, self._make = base, make
        self._rules = rules_of(base.config, axes, num_gpus)
        self._budget: Budget = budget_of(base.config.search)
        self._objectives = objectives_of(base.config.search)
        self.jobs, self._refused = list(jobs), list(refused)  # each refused trial has the number of jobs before it
        set_jobs_at_once(self.jobs, self._rules)
        self._trial_cache: tuple[list[Result | None], list[SearchTrial]] = [], []  # the jobs' results, and their trials
        self._proposed_at: tuple[int, int] | None = None  # numbers of jobs and of ended jobs at the last proposal
        self._num_lost: dict[int, int] = {}  # by trial, how often its run was lost
        self.trouble = ""  # why the search ended early
        self.how_far_off = ""  # at the end, a sentence on the errors of its runs' estimates
        self._looked = 0  # blocks at the last reported look
        self.why: dict[str, str] = {}  # the reason for each setting that cannot be run

    @property
    def tried(self) -> list[tuple[SearchTrial, Job | None]]:
        """All trials in the order of their start, each with its job if it could be run."""
        trials: list[tuple[SearchTrial, Job | None]] = list(zip(self._trials_of_jobs(), self.jobs, strict=True))
        for place, trial in reversed(self._refused):
            trials.insert(place, (trial, None))
        return trials

    def _trials_of_jobs(self) -> list[SearchTrial]:
        """The jobs as trials. Folders are read only after a job began or ended, since this is called often."""
        results = [job.result for job in self.jobs]
        if len(results) != len(self._trial_cache[0]) or any(map(operator.is_not, results, self._trial_cache[0])):
            self._trial_cache = results, trials_of(self.jobs, self._budget)
        return self._trial_cache[1]

    @property
    def trials(self) -> list[SearchTrial]:
        return [trial for trial, _ in self.tried]

    def corners(self) -> list[RunConfig]:
        """A config to check for each value of each axis. Raises ConfigError if one fits no values of the other axes."""
        axes, words, make = self._rules.axes, self._base.overrides, self._make
        return [first_that_fits(words, axes, make, {axis.key: each}) for axis in axes for each in axis.to_check]

    def runs_to_first_look(self, fewest: bool = False) -> int:
        return runs_to_first_look(self._rules, fewest)

    def block(self) -> list[Job]:
        """A job of each setting to decide among; empty if the search has to explore first.

        Raises ConfigError for a setting that cannot be run.
        """
        words = [command_line(self._base, setting) for setting in self._rules.finalists]
        jobs = [Job(self._make(each), each) for each in words]
        for job in jobs:
            job.config.sweep.jobs_at_once = 1  # They have the machine to themselves.
        return jobs

    def next_jobs(self, folder: Path | None = None) -> list[Job]:
        """The jobs to submit now; empty while running jobs have to end first, and at the end.

        Lost runs are repeated. A proposal that cannot be run counts as failed, and the next one is taken. With the
        sweep's `folder`, the state is written there. Raises ConfigError if no setting can be run.
        """
        now = len(self.jobs), sum(job.result is not None for job in self.jobs)
        if now == self._proposed_at:  # Nothing has ended since, and proposing would disturb the measured runs.
            return []
        if lost := self._lost():
            return lost
        made: list[Job] = []
        while proposed := propose(self._rules, self.trials):
            for trial in proposed:
                if job := self._job(trial):
                    self.jobs.append(job)
                    made.append(job)
            if made:
                break
        if not self.jobs:
            raise ConfigError(f"search: no setting can be run: {next(iter(self.why.values()))}")
        if folder and made:
            try:
                sweep.extend(folder, self.jobs, len(self.jobs) - len(made))
            except OSError as error:  # Every run must be listed in the sweep's folder.
                del self.jobs[len(self.jobs) - len(made) :]
                self.trouble = f"The search ended early: {error}."
                return []
        self._proposed_at = len(self.jobs), sum(job.result is not None for job in self.jobs)
        if folder:
            with suppress(OSError):  # The runs' folders hold the same facts.
                self.write(folder)
        return made

    def to_start(self) -> list[Job]:
        """The jobs to begin with; once the budget is spent, only those that a queue holds. Lost runs come later."""
        waiting = [job for job in self.jobs if job.result is None]
        queued = [job for job in waiting if job.folder or self._left() > 0]
        self.trouble = SPENT if len(queued) < len(waiting) else self.trouble
        return queued

    def _lost(self) -> list[Job]:
        """New jobs for lost runs while the budget lasts; a run that crashes each time is given up."""
        made: list[Job] = []
        for place, job in enumerate(self.jobs):
            if job.result is None or job.settled:
                continue
            num_lost = self._num_lost.get(job.config.search.trial, 0) + 1
            if num_lost <= MOST_TRIES and self._left() <= 0:
                self.trouble = SPENT
            elif num_lost <= MOST_TRIES:  # The lost run's follower keeps the old job.
                self._num_lost[job.config.search.trial] = num_lost
                self.jobs[place] = again = dataclasses.replace(job, lost=list(job.lost))
                again.start_anew()
                made.append(again)
            elif failures.is_crash(job.result.failure):
                job.given_up = True
                self._trial_cache = [], []
        return made

    def _left(self) -> float:
        return self._budget.amount - math.fsum(trial.cost for trial in self.trials)

    @property
    def left(self) -> str:
        """What a resumed search has left of its budget, in words; empty for a new search."""
        return self._budget.words(max(0.0, self._left())) if any(job.folder for job in self.jobs) else ""

    def answers(self) -> list[Answer]:
        """The answer by each objective. Runs that a spent budget cannot repeat or begin only add to the cost."""
        if self._left() > 0:
            return answers(self._rules, self.trials)
        idle = [each for each, job in self.tried if each.state == "running" and job and (job.result or not job.folder)]
        return answers(self._rules, [trial for trial in self.trials if trial not in idle], idle)

    def answer(self) -> Answer:
        return self.answers()[0]

    def points(self) -> list[fronts.Point]:
        """The settings with a value by both objectives; in a search by one objective, with a time and a cost."""
        return fronts.means(points(self.jobs, self._drawn), self.trials)

    @property
    def _drawn(self) -> Sequence[str]:
        return self._objectives if len(self._objectives) > 1 else ("time", "cost")

    def begins(self) -> str:
        """The first line of the search as it begins or continues."""
        return answer_words.begins(self._base.config.search, self._objectives, bool(self._rules.finalists), self.jobs)

    def write(self, folder: Path, words: str = "") -> None:
        """Write the trace with the answer so far; `words` are the final answer, if known. Raises OSError."""
        so_far = f"No answer yet, after {counted(sum(job.result is not None for job in self.jobs), 'run')}."
        trace_file.write(folder, self._base.config.search, self.tried, self._row(folder, words or so_far))

    def _row(self, folder: Path, words: str) -> dict[str, Any]:
        means = setting_means.means_of(self.jobs)
        answer = answer_record.record(self.answers(), self._objectives, self._budget, means, self._drawn, self.points())
        return {"sweep": folder.name, **answer, "words": words}

    def new_look(self) -> dict[str, Any] | None:
        """The newest look at the deciding runs: its number of blocks and its result. None if it was returned before."""
        blocks: dict[int, list[str]] = {}
        for trial in self.trials:
            if trial.block is not None:
                blocks.setdefault(trial.block, []).append(trial.state)
        whole = [block for block in blocks if "running" not in blocks[block]]
        if len(whole) in (0, self._looked) or len(whole) not in self._rules.looks:
            return None
        self._looked = len(whole)
        first, *others = [
            {"objective": objective, "named": answer.named, "alike": list(answer.alike), "why": answer.why}
            for objective, answer in zip(self._objectives, self.answers(), strict=True)
        ]
        return {"blocks": len(whole), **first, **({"second": others[0]} if others else {})}

    def told(self, folder: Path) -> dict[str, Any]:
        """The answer as in the search.json of the sweep's folder, words included."""
        row: dict[str, Any] = documents.finite(self._row(folder, self.words()))
        return row

    def words(self) -> str:
        """The answer in words; if every run failed, the failure of the first one."""
        if self.answer().why == "all failed":
            first = next(job for trial, job in self.tried if job and trial.state == "failed")
            return f"Every run failed. The first: {sweep_summary.outcome(first)}"
        means = setting_means.means_of(self.jobs)
        answer = answer_words.text(self.answers(), self._objectives, self._budget, means, self.points())
        took = "" if self.answer().named else answer_words.one_run(*seconds_of(self.jobs))
        stopped = answer_words.timed_out(self.jobs, self._base.config.timeout_sec)
        resumed = setting_means.left_out(self.jobs)
        return " ".join(filter(None, [self.trouble, answer, resumed, stopped, took, self.how_far_off]))

    def finish(self, folder: Path) -> None:
        """Write the final answer and its pictures. Raises OSError."""
        from tracking.jobs.search import pictures  # Imported late: no run's start waits for the plotting library.

        self.write(folder, self.words())
        pictures.write(folder, self.trials, self._rules.axes, self._objectives)
        pictures.write_front(folder, self.points(), self._drawn)

    def show(self, console: Console) -> None:
        answers = self.answers()
        if answers[0].num_decided:
            console.print(answer_words.table(answers, self._objectives, setting_means.means_of(self.jobs)))
        console.print(self.words(), soft_wrap=True)
        for setting, why in list(self.why.items())[:5]:
            console.print(f"not run: {setting}: {why}", soft_wrap=True)
        for job in [job for job in self.jobs if job.given_up][:5]:
            setting = answer_words.setting_text(job.config.search.setting)
            console.print(f"crashed each time: {setting}: {sweep_summary.outcome(job)}", soft_wrap=True)

    def _job(self, trial: SearchTrial) -> Job | None:
        number, left = len(self.jobs) + 1, self._left()
        try:
            job = job_of_trial(trial, self._base, number, self._rules, self._budget, left, self._make)
        except ConfigError as error:
            self._refuse(trial, str(error))
            return None
        if any(other.config.config_hash() == job.config.config_hash() for other in self.jobs):
            self._refuse(trial, "another setting gives the same config: both are the same run")
            return None
        return job

    def _refuse(self, trial: SearchTrial, why: str) -> None:
        self._refused.append((len(self.jobs), dataclasses.replace(trial, state="failed", refused=True)))
        self.why[" ".join(setting_overrides(trial.setting))] = why
