"""Messages of a launcher about its jobs: begun, waiting, running, ended, and how many are left."""

from __future__ import annotations

from rich.console import Console

from conf.launch_options import SearchConfig
from tracking.base.console import Drawing
from tracking.base.number_text import significant
from tracking.jobs.follow import job_words
from tracking.jobs.node import JobState, Ticket
from tracking.jobs.plan import Job, sweep_summary
from tracking.record import Record, checkpoints


def of_search(search: SearchConfig, seed: int) -> str:
    """The line of a starting run: `run 7, exploring: batch_size=8 seed=1, for 9.1 s of training at most`."""
    phase = "exploring" if search.phase == "explore" else f"deciding, block {(search.block or 0) + 1}"
    setting = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in search.setting.items())
    cap = "" if search.cap_sec is None else f", for {significant(search.cap_sec)} s of training at most"
    return f"run {search.trial}, {phase}: {setting} seed={seed}{cap}"


class JobMessages:
    """Prints the messages. `num_jobs` is 0 if a search decides the number of jobs.

    `at_once` is how many jobs run together here; 0 if it is unknown when a queue will run them.
    """

    def __init__(self, console: Console, num_jobs: int, at_once: int) -> None:
        self._console = console
        self._num_jobs = num_jobs
        self._at_once = at_once
        self._num_begun = self._num_ended = 0
        self._took_sec: list[float] = []
        self._states: dict[str, str] = {}  # the state last printed, by the job's name
        self._trouble: dict[str, str] = {}

    def begins(self, job: Job) -> None:
        """Print that a job is about to be submitted, in a sweep on this machine."""
        self._num_begun += 1
        if self._num_jobs > 1 and self._at_once:
            overrides = " ".join(job.overrides)
            self._print(f"job {self._num_begun} of {self._num_jobs}: {overrides}")
        elif not self._num_jobs:
            self._print(of_search(job.config.search, job.config.seed))

    def submitted(self, job: Job, made: Ticket) -> None:
        if job.config.cluster.kind != "none":
            self._print(f"  {job.name}: job {made.job_id}")

    def resumed(self, job: Job, record: Record) -> None:
        if job.config.cluster.kind == "none":
            return  # The launcher that resumed it here has printed this.
        place = record.values["epoch_num"], record.values.get("step", 0)
        goes_on = f"goes on after {checkpoints.after_and_next(*place)}"
        self._print(f"  {job.name}: {goes_on if any(place) else 'begins anew, since it has no checkpoint'}")

    def state(self, job: Job, state: JobState) -> None:
        """Print the queue's state of a job if it has changed."""
        words = str(state)
        if words != self._states.get(job.name) and (state.nodes or job.config.cluster.kind != "none"):
            self._states[job.name] = words
            self._print(f"  {job.name}: {words}")

    def ended(self, job: Job, took_sec: float | None) -> None:
        """Print how a sweep's job ended, and how many are left."""
        self._num_ended += 1
        self._took_sec += [took_sec] if took_sec is not None else []
        if self._num_jobs == 1:
            return
        known = self._took_sec and self._at_once
        mean_sec = sum(self._took_sec) / len(self._took_sec) / self._at_once if known else None
        with Drawing(self._console, f"what became of {job.name} is not shown"):
            left = max(0, self._num_jobs - self._num_ended)
            self._print(job_words.job_line(job.name, sweep_summary.outcome(job), left, mean_sec))

    def trouble(self, doing: str, words: str = "") -> None:
        """Print once why the queue cannot do something. Call it with empty `words` when that works again."""
        if words and words != self._trouble.get(doing):
            self._print(f"note: {words}")
        self._trouble[doing] = words

    def _print(self, words: str) -> None:
        self._console.print(words, soft_wrap=True)
