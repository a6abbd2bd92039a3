"""Lines on jobs: remarks on a running job, and the outcome of an ended one."""

from __future__ import annotations

from tracking.analysis.results import EXPLORING
from tracking.base.number_text import counted
from tracking.record import Record

# Tags that are printed as soon as they are recorded.
REMARKS = {
    "timetrial.uncounted": "not counted:",
    "eval_interval": "evaluates",
    "checkpoints": "checkpoints are written",
    "program.unread_numbers": "numbers that are not read (program.unread_numbers):",
    "program.unread_lines": "lines that are not read (program.unread_lines):",
    "program.not_understood": "not understood (program.not_understood):",
    "program.no_number": "no number (program.no_number):",
}


def remark(record: Record) -> str:
    """Remarks from a record's tags, on missing or doubtful figures; empty for other records."""
    tags = record.values if record.kind == "tags" else {}
    # A search already printed that it explores.
    words = [f"{label} {tags[tag]}" for tag, label in REMARKS.items() if tag in tags and tags[tag] != EXPLORING]
    if "env.differs" in tags:
        words.append(f"its nodes {tags['env.nodes']} differ in {tags['env.differs']}")
    return "; ".join(words)


def job_line(name: str, outcome: str, num_left: int, mean_sec: float | None) -> str:
    """A job's outcome, and the number of jobs left with their estimated time, if known."""
    left = f"{counted(num_left, 'job')} left"
    left += "" if mean_sec is None else f", about {duration(num_left * mean_sec)}"
    return f"  {name}: {outcome}" + (f"; {left}" if num_left else "")


def duration(sec: float) -> str:
    """`0:42`, `12:05` or `3:20:00`."""
    minutes, seconds = divmod(round(sec), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
