"""Keeps what PyTorch traced and compiled of a function, so that a later process loads it and traces nothing.

PyTorch's caches find generated code by the graph, so each process has to trace it, for seconds. Here the key is what
the call looks like from outside: the code, the arguments and PyTorch's settings. PyTorch's guards check the rest. If a
step fails, the function is compiled as usual.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainers.loop.warmup import kept_sources

LOADS_SEC: list[float] = []  # duration of each load in this process
SAVES_SEC: list[float] = []  # duration of each compilation that was kept
LOADED: list[tuple[Store, str]] = []  # the stores and names of the traces that this process loaded
_only_kept = False  # whether a block of `only_kept` runs
PLAIN = (bool, int, float, str, type(None))  # kinds of values whose text identifies them


class Store(Protocol):
    """Where traces are kept, by name."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


class KeptTraces:
    """Calls a function's trace from `store`; in a situation without one, compiles the function and keeps its trace.

    `compiling.is_ours` tells which functions suit. Arguments are tensors, modules, plain values and lists of these; a
    call with arguments by name is compiled as usual.
    """

    def __init__(self, store: Store, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function, self._options, self._store = function, dict(options), store
        self._usual: Any = torch.compile(function, dynamic=False, options=self._options or None)
        self._by_situation: dict[Any, Any] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or not _is_default() or DistributedDataParallel._get_active_ddp_module() is not None:
            return self._usual(*args, **named)  # DDP has PyTorch compile the backward pass in pieces.
        situation = _situation(args)
        if situation not in self._by_situation:
            self._by_situation[situation] = self._obtained(args)
        if _only_kept:
            return self._function(*args)
        kept = self._by_situation[situation]
        if kept is None or not _in_one_thread(kept.guard_check, *args):
            return self._usual(*args)
        _begin_call()
        return kept.fn(*args)

    def _obtained(self, args: tuple[Any, ...]) -> Any:
        """Load or compile for these arguments; None if PyTorch cannot keep or load this function."""
        began = time.monotonic()
        name = self._name(args)
        compiled = kept_sources.unchanged(self._store.read(name))
        if compiled == b"":
            return None
        try:
            kept = self._loaded(compiled) if compiled else None
            if kept is not None and _in_one_thread(kept.guard_check, *args):
                LOADS_SEC.append(time.monotonic() - began)
                LOADED.append((self._store, name))
                return kept
            kept = self._compiled(name, args)
            SAVES_SEC.append(time.monotonic() - began)
            return kept
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # PyTorch may raise anything here; the function is then compiled as usual.
            words = str(error).splitlines() or [""]
            logging.getLogger(__name__).warning(
                "%s is traced anew: %s: %s", self._name_of, type(error).__name__, words[0]
            )
            if not (isinstance(error, OSError) or _only_kept or _lacks_memory(error)):
                self._write(name, set(), b"")
            return None

    def _loaded(self, compiled: bytes) -> Any:
        from torch._dynamo.aot_compile import AOTCompiledFunction

        with torch._inductor.config.patch(self._options):
            return AOTCompiledFunction.deserialize(compiled, self._function.__globals__)

    def _compiled(self, name: str, args: tuple[Any, ...]) -> Any:
        """Compile, and write the result to the store."""
        with torch._dynamo.config.patch(enable_aot_compile=True), _without_gradients(args):
            function: Any = torch.compile(self._function, dynamic=False, fullgraph=True, options=self._options or None)
            compiled = _in_one_thread(function.aot_compile, (args, {}))
            serialized = type(compiled).serialize(compiled).serialized_data
        traced = {source.module for source in compiled.source_info().inlined_sources}
        self._write(name, traced, serialized)
        return compiled

    def _write(self, name: str, traced: set[str], compiled: bytes) -> None:
        content = kept_sources.with_sources(compiled, traced | {self._function.__module__})
        if content is not None:
            self._store.write(name, content)

    @property
    def _name_of(self) -> str:
        return f"{self._function.__module__}.{self._function.__qualname__}"

    def _name(self, args: tuple[Any, ...]) -> str:
        """Return a digest of all that decides the compiled code, except the function's source."""
        settings = [
            torch._inductor.config.save_config_portable(),
            torch._functorch.config.save_config_portable(),
            torch.compiler.config.cache_key_tag,
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        ]
        machine: list[object] = [sys.version, torch.__version__, torch.version.cuda, torch.version.git_version]
        machine += [torch.backends.cpu.get_cpu_capability()]
        if torch.cuda.is_initialized():  # All properties would include the number of this very GPU.
            gpu = torch.cuda.get_device_properties(0)
            machine += [gpu.name, gpu.major, gpu.minor, gpu.multi_processor_count, gpu.total_memory]
        else:
            machine += [torch.get_num_threads()]  # Code for a CPU divides its loops by it.
        facts = [self._name_of, sorted(self._options.items()), _situation(args), _described(args), settings, machine]
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def _situation(args: Any) -> tuple[Any, ...]:
    """Return a key of those properties of a call that select its compiled code; the guards check the rest."""
    autocast = tuple(
        (kind, torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)
    )
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, _flat(args))


def _flat(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    if isinstance(value, nn.Module):
        return type(value), value.training
    if isinstance(value, (list, tuple)):
        return tuple(map(_flat, value))
    return type(value), value


def _described(value: Any) -> Any:
    """Return the properties of the arguments' modules: their layers as text, settings and tensors."""
    if isinstance(value, nn.Module):
        tensors = [*value.named_parameters(), *value.named_buffers()]
        return [
            repr(value),
            [_settings(part) for part in value.modules()],
            [(name, _flat(tensor)) for name, tensor in tensors],
        ]
    return [_described(part) for part in value] if isinstance(value, (list, tuple)) else ""


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """Return the attributes of a module that its layers' text may not show: plain values, and functions by name."""
    return [
        (name, value if isinstance(value, PLAIN) else getattr(value, "__qualname__", None))
        for name, value in vars(module).items()
        if not name.startswith("_")
    ]


@contextmanager
def _without_gradients(args: tuple[Any, ...]) -> Iterator[None]:
    """Hide the gradients of the arguments' parameters: PyTorch 2.11 cannot load guards that were saved with some."""
    modules = [value for value in args if isinstance(value, nn.Module)]
    gradients = [(parameter, parameter.grad) for module in modules for parameter in module.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*grad attribute of a Tensor that is not a leaf")
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _in_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function; on a GPU, with one thread for PyTorch's operators on the CPU.

    PyTorch's guards hold the number of threads, which is a process's share of the cores. Code for a GPU does not depend
    on it.
    """
    if not torch.cuda.is_initialized():
        return function(*args)
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(*args)
    finally:
        torch.set_num_threads(number)


@contextmanager
def only_kept() -> Iterator[None]:
    """Within the block, compile and keep functions, but run them without their compiled code."""
    global _only_kept
    _only_kept = True
    try:
        yield
    finally:
        _only_kept = False


def _lacks_memory(error: Exception) -> bool:
    """Return whether memory was lacking, also within an error of the compiler."""
    inner = getattr(error, "inner_exception", None)
    return isinstance(inner, torch.OutOfMemoryError) or "out of memory" in str(error).lower()


def forget_loaded() -> int:
    """Delete the traces that this process loaded; later processes trace again. Return the number of traces."""
    for store, name in LOADED:
        store.remove(name)
    return len(LOADED)


def _is_default() -> bool:
    """Return whether compiled functions run compiled: `torch.compiler.set_stance` may have them run eagerly."""
    return bool(torch._dynamo.eval_frame._stance.stance == "default")


def _begin_call() -> None:
    """Count the call as torch.compile does. Its CUDA graphs begin a step, and reuse memory, when the count rises."""
    torch._dynamo.mutation_guard.GenerationTracker.generation += 1
