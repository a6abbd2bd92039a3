"""The stacks of a launch: judges all of them before one is built, then makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def judge_all(configs: Sequence[RunConfig], gpus: Sequence[nvml.Gpu]) -> list[Verdict]:
    """A verdict for each stack of the jobs, in their order."""
    verdicts: dict[str, Verdict] = {}
    needed = interpreter.needs(configs)
    for config in configs:
        name = config.stack.name
        if name not in verdicts:
            verdicts[name] = judge(config.stack, config.chosen(gpus), needed=needed[name])
    return list(verdicts.values())


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
    by_name = {stack.name: stack for stack in stacks}
    for stack in by_name.values():
        if ready(stack):
            continue
        try:
            make(stack, say, needed.get(stack.name, NEEDED))
        except ConfigError as error:
            fine = [name for name, other in by_name.items() if ready(other)]
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
