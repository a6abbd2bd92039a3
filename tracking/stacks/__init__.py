"""The software stacks: what is declared, whether it can run here, and the environments that are made of it.

`judge_all` and `check_verdicts` say what the stacks of a launch need and what was found, before anything is built;
`make_all` builds what is to be built, once, in the cache; `python_of` is the interpreter that a worker then runs on.
"""

from __future__ import annotations

from tracking.stacks import uv_environment
from tracking.stacks.check import check_verdicts, judge_all, make_all, python_of
from tracking.stacks.declaration import declared
from tracking.stacks.expectation import expected
from tracking.stacks.interpreter import Interpreter
from tracking.stacks.releases import MIN_DRIVER
from tracking.stacks.uv_environment import ready
from tracking.stacks.verdict import Verdict, judge, verdict_table

__all__ = [
    "MIN_DRIVER",
    "Interpreter",
    "Verdict",
    "check_verdicts",
    "declared",
    "expected",
    "judge",
    "judge_all",
    "make_all",
    "python_of",
    "ready",
    "uv_environment",
    "verdict_table",
]
