"""The stacks of a launch: judged together before any is built, then made, then run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from conf.schema import ConfigError, RunConfig, StackConfig
from tracking.environment import nvml
from tracking.stacks import interpreter, uv_environment
from tracking.stacks.interpreter import Interpreter
from tracking.stacks.verdict import Verdict, judge


def judge_all(configs: Sequence[RunConfig], gpus: Sequence[nvml.Gpu]) -> list[Verdict]:
    """One verdict for each stack of the jobs, in their order."""
    verdicts: dict[str, Verdict] = {}
    for config in configs:
        if config.stack.name not in verdicts:
            verdicts[config.stack.name] = judge(config.stack, gpus[: int(config.gpus)])
    return list(verdicts.values())


def check_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Raise ConfigError where a stack cannot run here, with those that can."""
    wrong = [verdict for verdict in verdicts if verdict.error]
    if not wrong:
        return
    fine = [verdict.stack for verdict in verdicts if not verdict.error]
    rest = f". Of this sweep can run: stack={','.join(fine)}" if fine else ""
    raise ConfigError("; ".join(verdict.error for verdict in wrong) + rest)


def make_all(stacks: Iterable[StackConfig], say: Callable[[str], None]) -> None:
    """Make the environments that are not there yet, and `say` what is made. Raises ConfigError."""
    for stack in {stack.name: stack for stack in stacks}.values():
        if stack.kind == "uv" and uv_environment.find(stack) is None:
            say(f"stack {stack.name}: making its environment, once ({uv_environment.summary(stack)})")
            made = uv_environment.make(stack)
            size = f"{made.size_bytes / 1e9:.1f} GB"
            say(f"stack {stack.name}: made in {made.build_sec:.0f} s, {size}: {made.python.parents[2]}")


def python_of(stack: StackConfig) -> Interpreter | None:
    """The Python that a stack's worker runs on, its environment made where it is not; None for this one."""
    if stack.kind == "native":
        return None
    path = str(uv_environment.make(stack).python) if stack.kind == "uv" else str(stack.python)
    return probed(stack.name, path)


@cache
def probed(name: str, path: str) -> Interpreter:
    """An interpreter is asked once a launch."""
    return interpreter.probe(StackConfig(name=name), path)
