"""Summarize a trace by step: kernels by time, classes, and gaps with the host's activity meanwhile.

A kernel's class follows from its name and from the phase of the step in which it was launched.

Names come from cuBLAS (`nvjet_`, `*gemm*`), cuDNN (`*xmma_fprop*`, `cudnn::`), CUTLASS, NCCL (`ncclDevKernel_*`),
PyTorch (`at::native::*`) and Inductor. Inductor's names are `triton_`, a kind (`poi` pointwise, `red` and `per`
reductions, `tem` templates) and the fused operators. On a CPU the names are operators' (`aten::*`). The first matching
rule decides; without a match the class is `other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tracking.measure.kernels.trace import MARK, OPTIMIZER, Span, Trace, overlapping

PYTHON = "Python"  # neither an operator nor a driver call ran
WAITING = "backward"  # in this phase, the training thread waits for autograd's thread
MAX_GAPS = 30  # rows; one more row holds the rest of the time
ALL_ELSE = "all else"
OF_OPTIMIZER, COLLECTIVE, OTHER = "optimizer", "collective", "other"
CLASSES = {
    COLLECTIVE: "collectives of NCCL and Gloo",
    OF_OPTIMIZER: "the optimizer's step",
    "copy": "copies and changes of layout",
    "attention": "attention",
    "convolution": "convolutions",
    "matrix product": "matrix products",
    "normalisation": "normalisation",
    "elementwise": "elementwise operations",
    "reduction": "reductions",
    OTHER: "all else",
}
# Copies come first, since their names may hold words of computing, such as nchwToNhwc of a convolution.
RULES = [
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        (COLLECTIVE, r"nccl|^gloo:|c10d::|all_?reduce|reduce_scatter|all_?gather"),
        (
            "copy",
            r"memcpy|memset|nchwToNhwc|nhwcToNchw|AddPadding|direct_copy|CatArray|copy_kernel|transpose(?!d)"
            r"|^aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|fill_|zero_)$",
        ),
        ("attention", r"flash|fmha|attention|sdpa"),
        ("elementwise", r"^triton_poi_"),
        ("normalisation", r"^triton_(red|per)_.*norm|(batch|layer|group|instance|rms)_?norm|cudnn::bn|bn_(fw|bw)"),
        ("convolution", r"fprop|dgrad|wgrad|winograd|implicit|conv(?!ert)|cudnn.*(engine|gemm)|^triton_tem_.*conv"),
        (
            "matrix product",
            r"gemm|gemv|nvjet|cutlass|cublas|splitk|xmma|^triton_tem_"
            r"|^_(there_and_back|to_rows|to_weight)$"  # NCF's, mostly products
            r"|^aten::(mm|bmm|addmm|baddbmm|matmul|linear|dot|mv)$|mkldnn_linear",
        ),
        ("reduction", r"^triton_(red|per)_|reduce|softmax|^aten::(sum|mean|max|min|amax|amin|argmax|all|any|norm)$"),
        (
            "elementwise",
            r"elementwise|vectorized|pointwise|^(loop|wrapped)_\w*|_fusion"  # the latter are XLA's
            r"|^aten::_?(foreach_)?(add|sub|mul|div|neg|pow|sqrt|exp|log|relu|threshold|threshold_backward|sigmoid|tanh"
            r"|clamp|clamp_min|where|eq|ne|lt|le|gt|ge|lerp|addcmul|addcdiv|dropout|gelu|silu|hardtanh)_?(_backward)?$",
        ),
    )
]


@dataclass(frozen=True)
class Summary:
    """The figures of an average step, in milliseconds.

    `kernels` have name, class, calls, ms and share; `classes` have class, calls, ms and share; `gaps` have phase, host,
    ms and share. Shares of kernels are of all kernels' time, shares of gaps are of the step.
    """

    on_gpu: bool
    num_steps: int
    step_ms: float
    busy_ms: float  # the time in which any kernel ran
    collective_ms: float
    kernels: list[dict[str, Any]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def summarize(trace: Trace) -> Summary:
    """The summary of a trace's steps."""
    per_step_ms = 1e-3 / trace.num_steps
    step_ms = (trace.window.end - trace.window.begin) * per_step_ms
    busy = union([piece for kernel in trace.kernels for piece in kernel.pieces], trace.window)
    kernels = _kernels(trace, per_step_ms)
    classes = _classes(kernels)
    return Summary(
        on_gpu=trace.on_gpu,
        num_steps=trace.num_steps,
        step_ms=step_ms,
        busy_ms=sum(span.end - span.begin for span in busy) * per_step_ms,
        collective_ms=next((row["ms"] for row in classes if row["class"] == COLLECTIVE), 0.0),
        kernels=kernels,
        classes=classes,
        gaps=_gaps(trace, busy, per_step_ms, step_ms),
    )


def union(spans: Sequence[Span], within: Span) -> list[Span]:
    """The union of the spans within another, as ordered spans that do not touch."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.begin):
        begin, end = max(span.begin, within.begin), min(span.end, within.end)
        if begin >= end:
            continue
        if merged and begin <= merged[-1].end:
            merged[-1] = Span("", merged[-1].begin, max(end, merged[-1].end))
        else:
            merged.append(Span("", begin, end))
    return merged


def _kernels(trace: Trace, per_step_ms: float) -> list[dict[str, Any]]:
    """Rows by name and class; a kernel that the optimizer launches too has two rows."""
    rows: dict[tuple[str, str], list[float]] = {}
    for kernel in trace.kernels:
        row = rows.setdefault((kernel.name, class_of(kernel.name, trace.phase(kernel.launched))), [0.0, 0.0])
        row[0] += 1
        row[1] += kernel.busy * per_step_ms
    total = sum(ms for _, ms in rows.values())
    return [
        {"name": name, "class": kind, "calls": calls / trace.num_steps, "ms": ms, "share": ms / total if total else 0.0}
        for (name, kind), (calls, ms) in sorted(rows.items(), key=lambda row: (-row[1][1], row[0]))
        if ms
    ]


def _classes(kernels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        row = sums.setdefault(kernel["class"], {"class": kernel["class"], "calls": 0.0, "ms": 0.0, "share": 0.0})
        for key in ("calls", "ms", "share"):
            row[key] += kernel[key]
    return sorted(sums.values(), key=lambda row: -row["ms"])


def _gaps(trace: Trace, busy: Sequence[Span], per_step_ms: float, step_ms: float) -> list[dict[str, Any]]:
    """The device's idle time, by phase and by the host's innermost activity."""
    gap_us: dict[tuple[str, str], float] = {}
    for begin, end in _idle(busy, trace.window):
        for span in _partition(overlapping(trace.main, begin, end), Span(PYTHON, begin, end)):
            phase = trace.phase(span.begin)
            for piece in _other_threads(trace, span) if phase == WAITING and _is_mark(span) else [span]:
                key = phase, PYTHON if _is_mark(piece) else piece.name
                gap_us[key] = gap_us.get(key, 0.0) + piece.end - piece.begin
    rows = sorted(gap_us.items(), key=lambda row: (-row[1], row[0]))
    largest = [(phase, host, us) for (phase, host), us in rows[:MAX_GAPS]]
    largest += [(ALL_ELSE, "", sum(us for _, us in rows[MAX_GAPS:]))] if len(rows) > MAX_GAPS else []
    return [
        {"phase": phase, "host": host, "ms": us * per_step_ms, "share": us * per_step_ms / step_ms}
        for phase, host, us in largest
    ]


def _idle(busy: Sequence[Span], window: Span) -> Iterator[tuple[float, float]]:
    begin = window.begin
    for span in busy:
        if span.begin > begin:
            yield begin, span.begin
        begin = span.end
    if window.end > begin:
        yield begin, window.end


def _other_threads(trace: Trace, wait: Span) -> list[Span]:
    """The other threads' activity while the training thread waited; the rest of the time is the wait itself."""
    pieces = [piece for spans in trace.others for piece in overlapping(spans, wait.begin, wait.end)]
    return _partition(sorted(pieces, key=lambda piece: piece.begin), wait)


def _partition(spans: Sequence[Span], whole: Span) -> list[Span]:
    """Partition `whole` into the spans, where earlier spans win, and into pieces named like `whole` for the rest."""
    pieces: list[Span] = []
    now = whole.begin
    for span in [*spans, Span("", whole.end, whole.end)]:
        if span.begin > now:
            pieces.append(Span(whole.name, now, span.begin))
        if span.end > max(now, span.begin):
            pieces.append(Span(span.name, max(now, span.begin), span.end))
        now = max(now, span.end)
    return pieces


def _is_mark(span: Span) -> bool:
    return span.name.startswith(MARK) or bool(OPTIMIZER.match(span.name))


def class_of(name: str, phase: str) -> str:
    """One of CLASSES: collectives in any phase, `optimizer` for all else in the optimizer's step, else by name."""
    if RULES[0][1].search(name):
        return COLLECTIVE
    if phase == OF_OPTIMIZER:
        return OF_OPTIMIZER
    return next((kind for kind, pattern in RULES[1:] if pattern.search(name)), OTHER)
