"""Read a trace of PyTorch's profiler: the traced steps, and the activity of device and host in them.

Times are in microseconds, as in the document (Trace Event Format, "complete events"). Categories are Kineto's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARK = "timetrial: "  # prefix of the annotations that divide a traced step into phases
STEP = "ProfilerStep#"
OPTIMIZER = re.compile(r"Optimizer\.step#")  # PyTorch's own annotation; a closure within it has its own marks
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "user_annotation"}
LAUNCHES = {"cuda_runtime", "cuda_driver"}
GLOO = "gloo:"  # the exchange on CPUs, on threads of its own
REST = "rest of the step"  # time outside of all phases


@dataclass(frozen=True)
class Span:
    """A named interval from `begin` to `end`; `thread` is the host thread."""

    name: str
    begin: float
    end: float
    thread: int = 0


@dataclass(frozen=True)
class Kernel(Span):
    """A kernel or an operator. `launched` is the time of its launch by the host, or `begin` if not known.

    `pieces` are the parts of its time in which it was the innermost operator; for a GPU kernel, all of its time.
    """

    launched: float = 0.0
    pieces: tuple[Span, ...] = ()

    @property
    def busy(self) -> float:
        return sum(piece.end - piece.begin for piece in self.pieces)


@dataclass(frozen=True)
class Trace:
    """A parsed trace. `main` has the training thread's innermost span of each moment; `others` have other threads'."""

    on_gpu: bool
    window: Span  # from the start of the first traced step to the end of the last
    num_steps: int
    kernels: Sequence[Kernel]
    phases: Sequence[Span]
    main: Sequence[Span]
    others: Sequence[Sequence[Span]] = field(default_factory=list)

    def phase(self, time: float) -> str:
        """The phase of the step on the training thread at this time."""
        index = bisect_right(self.phases, time, key=lambda span: span.begin) - 1
        return self.phases[index].name if index >= 0 and time < self.phases[index].end else REST


def parse(document: Mapping[str, Any]) -> Trace:
    """The trace in a document. Raises ValueError for a document without a traced step."""
    events = [event for event in document.get("traceEvents", ()) if event.get("ph") == "X" and "dur" in event]
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    steps = [event for event in marks if event["name"].startswith(STEP)]
    if not steps:
        raise ValueError("the trace has no step, which torch.profiler would mark as ProfilerStep#N")
    training = int(steps[0]["tid"])
    window = Span("steps", min(map(_begin, steps)), max(map(_end, steps)))
    host: dict[int, list[Span]] = {}
    for event in events:
        if event.get("cat") in HOST and not event["name"].startswith(STEP):
            host.setdefault(int(event["tid"]), []).append(_span(event))
    innermost_by_thread = {thread: innermost(spans) for thread, spans in host.items()}
    on_gpu = any(event.get("cat") in DEVICE for event in events)
    kernels = _gpu_kernels(events) if on_gpu else _cpu_kernels(events, training)
    return Trace(
        on_gpu=on_gpu,
        window=window,
        num_steps=len(steps),
        kernels=[kernel for kernel in kernels if window.begin <= kernel.begin < window.end],
        phases=innermost([_phase(event) for event in marks if int(event["tid"]) == training and _is_phase(event)]),
        main=innermost_by_thread.get(training, []),
        others=[spans for thread, spans in innermost_by_thread.items() if thread != training],
    )


def innermost(spans: Sequence[Span]) -> list[Span]:
    """The innermost of one thread's nested spans at each moment, as pieces that do not overlap."""
    pieces: list[Span] = []
    open_spans: list[Span] = []
    now = 0.0

    def close_piece(time: float) -> None:
        nonlocal now
        if open_spans and time > now:
            pieces.append(Span(open_spans[-1].name, now, time, open_spans[-1].thread))
        now = max(now, time)

    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        while open_spans and open_spans[-1].end <= span.begin:
            close_piece(open_spans[-1].end)
            open_spans.pop()
        close_piece(span.begin)
        now = span.begin
        open_spans.append(span)
    while open_spans:
        close_piece(open_spans[-1].end)
        open_spans.pop()
    return pieces


def overlapping(spans: Sequence[Span], begin: float, end: float) -> list[Span]:
    """The parts of ordered, disjoint spans that lie between `begin` and `end`."""
    first = max(0, bisect_right(spans, begin, key=lambda span: span.begin) - 1)
    last = bisect_left(spans, end, key=lambda span: span.begin)
    parts = [Span(span.name, max(begin, span.begin), min(end, span.end), span.thread) for span in spans[first:last]]
    return [span for span in parts if span.end > span.begin]


def _gpu_kernels(events: Sequence[Mapping[str, Any]]) -> list[Kernel]:
    launches = {
        event["args"]["correlation"]: _begin(event)
        for event in events
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    kernels = []
    for event in events:
        if event.get("cat") in DEVICE:
            launched = launches.get(event.get("args", {}).get("correlation"), _begin(event))
            span = _span(event)
            kernels.append(Kernel(span.name, span.begin, span.end, launched=launched, pieces=(span,)))
    return kernels


def _cpu_kernels(events: Sequence[Mapping[str, Any]], training: int) -> list[Kernel]:
    """The training thread's operators, each with its time outside of inner operators, and Gloo's exchanges."""
    operators = [_span(event) for event in events if event.get("cat") == "cpu_op" and int(event["tid"]) == training]
    by_index = [Span(str(index), span.begin, span.end) for index, span in enumerate(operators)]
    pieces: dict[int, list[Span]] = {}
    for piece in innermost(by_index):
        pieces.setdefault(int(piece.name), []).append(piece)
    kernels = [
        Kernel(span.name, span.begin, span.end, launched=span.begin, pieces=tuple(pieces.get(index, ())))
        for index, span in enumerate(operators)
    ]
    exchanges = [_span(event) for event in events if event["name"].startswith(GLOO)]
    return kernels + [
        Kernel(span.name, span.begin, span.end, launched=span.begin, pieces=(span,)) for span in exchanges
    ]


def _is_phase(event: Mapping[str, Any]) -> bool:
    return event["name"].startswith(MARK) or bool(OPTIMIZER.match(event["name"]))


def _phase(event: Mapping[str, Any]) -> Span:
    name = "optimizer" if OPTIMIZER.match(event["name"]) else event["name"].removeprefix(MARK)
    return Span(name, _begin(event), _end(event))


def _span(event: Mapping[str, Any]) -> Span:
    # Threads and GPU streams both have numbers.
    thread = event.get("tid", 0)
    return Span(str(event["name"]), _begin(event), _end(event), thread if isinstance(thread, int) else 0)


def _begin(event: Mapping[str, Any]) -> float:
    return float(event["ts"])


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"]) + float(event["dur"])
