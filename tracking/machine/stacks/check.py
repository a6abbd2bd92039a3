"""The stacks of a launch: judges all of them before one is built, then makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from conf.schema import ConfigError, RunConfig, StackConfig
from tracking.base.installation import TRACKING
from tracking.machine.environment import nvml
from tracking.machine.stacks import container, container_images, interpreter, uv_environment
from tracking.machine.stacks.container_images import Image
from tracking.machine.stacks.interpreter import NEEDED, Interpreter
from tracking.machine.stacks.verdict import Verdict, judge

FOR_TRAINING: Mapping[str, Sequence[str]] = MappingProxyType({})


# What a verdict depends on: a stack's content, and the names and compute capabilities of the chosen GPUs.
Judged = tuple[str, frozenset[tuple[str, float | None]]]


def content(stack: StackConfig) -> str:
    """What decides whether a stack can be made and run; its variables and expected versions do not."""
    return repr(replace(stack, env={}, expect={}))


def judged_by(config: RunConfig, gpus: Sequence[nvml.Gpu]) -> Judged:
    """The key of a job's verdict. `gpus` are the visible ones."""
    return content(config.stack), frozenset((gpu.name, gpu.compute_capability) for gpu in config.chosen(gpus))


def judge_all(configs: Sequence[RunConfig], gpus: Sequence[nvml.Gpu]) -> dict[Judged, Verdict]:
    """The verdicts of all jobs, in their order. Raises ConfigError for two declarations with one name."""
    verdicts: dict[Judged, Verdict] = {}
    needed = interpreter.needs(configs)
    for config in configs:
        key = judged_by(config, gpus)
        if key not in verdicts:
            verdicts[key] = judge(config.stack, config.chosen(gpus), needed=needed[config.stack.name])
    return verdicts


def by_name(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """One verdict for each name: the first with an error, else the first."""
    rows: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.stack not in rows or (verdict.error and not rows[verdict.stack].error):
            rows[verdict.stack] = verdict
    return list(rows.values())


def check_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Raise ConfigError if a stack cannot run here. It names those that can."""
    wrong = [verdict for verdict in verdicts if verdict.error]
    if not wrong:
        return
    fine = [verdict.stack for verdict in verdicts if not verdict.error]
    raise ConfigError("; ".join(verdict.error for verdict in wrong) + runnable(fine))


def runnable(names: Sequence[str]) -> str:
    """The end of a refusal, with the stacks that can run."""
    return f". These can run: stack={','.join(names)}" if names else ""


def make_all(
    stacks: Iterable[StackConfig], say: Callable[[str], None], needed: Mapping[str, Sequence[str]] = FOR_TRAINING
) -> None:
    """Make missing environments and fetch missing images, and report that by `say`. Raises ConfigError.

    `needed` has, by stack, the packages that its Python must have; default: those of a training.
    """
    distinct = {content(stack): stack for stack in stacks}.values()
    for stack in distinct:
        if ready(stack):
            continue
        try:
            make(stack, say, needed.get(stack.name, NEEDED))
        except ConfigError as error:
            fine = [other.name for other in distinct if ready(other)]
            raise ConfigError(f"{error}{runnable(fine)}") from error


def make(stack: StackConfig, say: Callable[[str], None], needed: Sequence[str] = NEEDED) -> None:
    """Make a stack's environment, or fetch its image and check it. Raises ConfigError."""
    if stack.kind == "container":
        say(f"stack {stack.name}: {summary(stack)}, once")
        began = time.monotonic()
        image = container_images.pull(stack)
        container_images.check_architecture(stack, image)
        python = container.python(stack, image, needed)
        size = f", {image.size_bytes / 1e9:.1f} GB" if image.size_bytes else ""
        torch = f"torch {python.torch}, " if python.torch else ""
        content = f"Python {python.python}, {torch}{image.digest or image.run}"
        say(f"stack {stack.name}: fetched in {time.monotonic() - began:.0f} s{size}: {content}")
        return
    say(f"stack {stack.name}: making its environment, once ({uv_environment.summary(stack)})")
    environment = uv_environment.make(stack)
    size = f"{environment.size_bytes / 1e9:.1f} GB"
    say(f"stack {stack.name}: made in {environment.build_sec:.0f} s, {size}: {environment.python.parents[2]}")


def ready(stack: StackConfig) -> bool:
    """Whether a worker of this stack can start at once. Raises ConfigError if that is not known."""
    return container_images.find(stack) is not None if stack.kind == "container" else uv_environment.ready(stack)


def summary(stack: StackConfig) -> str:
    """The work that precedes the first start of a worker of this stack, as text."""
    if stack.kind == "container":
        return f"fetching its image {stack.container.image} with {stack.container.engine}"
    return f"making its environment: {uv_environment.summary(stack)}"


def python_of(stack: StackConfig, needed: Sequence[str] = NEEDED) -> Interpreter | None:
    """A stack's Python; None for this one. Makes a missing environment. Raises ConfigError."""
    if stack.kind == "native":
        return None
    if stack.kind == "container":
        return container.python(stack, image_of(stack), needed)
    path = str(uv_environment.make(stack).python) if stack.kind == "uv" else str(stack.python)
    return probed(stack.name, path, tuple(needed))


def image_of(stack: StackConfig) -> Image:
    """The image of a stack with a container. Raises ConfigError if it is not on this machine."""
    image = container_images.find(stack)
    if image is None:
        raise ConfigError(
            f"stack={stack.name}: stack.container.image={stack.container.image} was removed from this machine. Next:"
            f" fetch it with {TRACKING} stacks {stack.name} --build"
        )
    return image


@cache
def probed(name: str, path: str, needed: tuple[str, ...]) -> Interpreter:
    """The interpreter, probed once in a launch."""
    return interpreter.probe(StackConfig(name=name), path, needed)
