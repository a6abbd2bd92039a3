"""Marks within a step: the last gradient, and delays of the host."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from tracking.measure.steps import rank_parts
from tracking.measure.steps.host_watch import NAMES, HostWatch
from tracking.measure.steps.step_marks import LastGradient, optimizer_steps


def test_the_last_gradient_alone_keeps_its_hook() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    marked: list[object] = []
    last = LastGradient(lambda: marked.append(1) or len(marked))
    for step in range(3):
        net(torch.ones(1, 2)).sum().backward()
        last.watch(optimizer)
        # It is found in the second step, and marked from then on, as is the end of the backward pass.
        assert last.take_marks() == ((None, None) if step < 2 else (1, 2))
        optimizer.step()
    hooked = [name for name, each in net.named_parameters() if each._post_accumulate_grad_hooks]
    assert len(hooked) == 1
    assert hooked[0].startswith("0.")  # the first layer's, whose gradient comes last
    last.remove_hooks()
    assert not any(each._post_accumulate_grad_hooks for each in net.parameters())


def within(backward: list[float], after: list[float]) -> torch.Tensor:
    """Two ranks of a step each."""
    return torch.tensor([[[first], [second], [0.0]] for first, second in zip(backward, after, strict=True)])


def test_the_exchange_lies_in_the_backward_pass_or_after_it() -> None:
    """A rank's work between DDP's exchange and its optimizer does not count as waiting for others."""
    times, waits, held = torch.ones(2, 1), torch.zeros(2, 1), torch.zeros(2, len(NAMES))

    def exchange(*parts: list[float], is_ddp: bool = False) -> list[float]:
        return rank_parts.of_window(times, waits, within(*parts), held, torch.ones(2), is_ddp)["rank_exchange_ms"]

    assert exchange([0.5, 0.125], [0.0, 0.375]) == [500.0, 125.0]
    assert exchange([0.0, 0.0], [0.5, 0.125]) == [500.0, 125.0]
    assert exchange([0.005, 0.005], [0.08, 0.08], is_ddp=True) == [5.0, 5.0]  # It clips its gradients.


def test_a_step_with_a_closure_begins_before_its_gradients_and_does_not_count() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    begun: list[torch.optim.Optimizer] = []
    with optimizer_steps(begun.append):
        optimizer.step(lambda: 0.0)
        optimizer.step(closure=lambda: 0.0)
        assert begun == []
        optimizer.step()
    optimizer.step()
    assert begun == [optimizer]


def test_collections_are_timed_and_the_kernels_counters_are_differences(tmp_path: Path) -> None:
    thread, quota = tmp_path / "schedstat", tmp_path / "cpu.stat"
    thread.write_text("5000000000 1000000000 9")
    quota.write_text("usage_usec 7\nthrottled_usec 2000000\n")
    before = list(gc.callbacks)
    watch = HostWatch(thread, tmp_path)
    thread.write_text("6000000000 1250000000 9")
    quota.write_text("usage_usec 9\nthrottled_usec 2500000\n")
    gc.collect()
    seconds = dict(zip(NAMES, watch.seconds(), strict=True))
    assert seconds["gc"] > 0
    assert (seconds["queued"], seconds["quota"]) == (0.25, 0.5)
    assert watch.seconds()[1:3] == [0.0, 0.0]
    own = [callback for callback in gc.callbacks if callback not in before]
    assert len(own) == 1
    del watch
    assert own[0] not in gc.callbacks


def test_what_the_kernel_does_not_count_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_text("0 58858 1")  # as a sandbox says it
    assert HostWatch(tmp_path / "schedstat", tmp_path / "none").seconds()[1:3] == [0.0, 0.0]
