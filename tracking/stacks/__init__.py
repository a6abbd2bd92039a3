"""The software stacks: what is declared, whether it can run here, and the environments that are made of it.

`judged` and `check` say what the stacks of a launch need and what was found, before anything is built; `make` builds
what is to be built, once, in the cache; `python_of` is the interpreter that a worker then runs on.
"""

from __future__ import annotations

from tracking.stacks import environment
from tracking.stacks.check import check, judged, make, python_of
from tracking.stacks.declaration import declared
from tracking.stacks.environment import ready
from tracking.stacks.expectation import expected
from tracking.stacks.interpreter import Interpreter
from tracking.stacks.releases import MIN_DRIVER
from tracking.stacks.verdict import Verdict, judge, table

__all__ = [
    "MIN_DRIVER",
    "Interpreter",
    "Verdict",
    "check",
    "declared",
    "environment",
    "expected",
    "judge",
    "judged",
    "make",
    "python_of",
    "ready",
    "table",
]
