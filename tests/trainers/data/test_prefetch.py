"""Batches prepared in a thread: nothing early, nothing lost, no thread left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tests.support.commands import HANGS_SEC
from trainers.data.loading.prefetch import all_to_device, prefetch

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def num_threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS_SEC
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Numbers:
    """0, 1, ... with what was made and whether it was closed."""

    def __init__(self, stop: int = 1000, fail_at: int = -1) -> None:
        self.stop, self.fail_at = stop, fail_at
        self.made: list[int] = []
        self.thread = ""
        self.closed = False

    def __call__(self) -> Iterator[int]:
        try:
            for number in range(self.stop):
                if number == self.fail_at:
                    raise ValueError("broken file")
                self.thread = threading.current_thread().name
                self.made.append(number)
                yield number
        finally:
            self.closed = True


def test_everything_in_order_from_another_thread() -> None:
    numbers = Numbers(50)
    assert list(prefetch(numbers(), CPU)) == list(range(50))
    assert (numbers.thread, numbers.closed, num_threads()) == ("prefetch", True, 0)
    assert list(prefetch(iter([]), CPU)) == []
    assert list(prefetch(iter([3, 4]), CPU)) == [3, 4]  # an iterator that cannot be closed


@pytest.mark.parametrize("depth", [1, 3])
def test_keeps_depth_items_ahead_and_starts_with_the_first(depth: int) -> None:
    numbers = Numbers()
    items = prefetch(numbers(), CPU, depth)
    assert (numbers.made, num_threads()) == ([], 0)
    for number in range(5):
        assert next(items) == number
        until(lambda: len(numbers.made) == number + 1 + depth)  # noqa: B023
    time.sleep(0.02)
    assert len(numbers.made) == 5 + depth
    items.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["close", "drop", "throw"])
def test_a_consumer_that_stops_early_stops_the_thread(how: str) -> None:
    numbers = Numbers()
    items = prefetch(numbers(), CPU)

    assert [next(items) for _ in range(3)] == [0, 1, 2]
    if how == "close":
        items.close()  # type: ignore[attr-defined]
    elif how == "drop":
        del items
    else:
        with pytest.raises(KeyError):
            items.throw(KeyError())  # type: ignore[attr-defined]
    until(lambda: numbers.closed and num_threads() == 0)
    assert len(numbers.made) <= 6


def test_errors_come_out_where_the_item_would_have() -> None:
    numbers = Numbers(fail_at=3)
    items = prefetch(numbers(), CPU)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="broken file"):
        next(items)
    assert (numbers.closed, num_threads()) == (True, 0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])])
def test_a_batch_is_moved_in_one_buffer_and_each_part_is_where_kernels_want_it(device: str) -> None:
    rng = np.random.RandomState(0)
    arrays = {
        "flags": rng.rand(7) < 0.5, "weights": rng.rand(3, 5).astype(np.float32), "none": np.zeros((0, 4), np.int64),
        "ids": rng.randint(0, 99, (5, 3)).T, "bytes": rng.randint(0, 256, (2, 1, 9), dtype=np.uint8),
    }  # fmt: skip
    moved = all_to_device(arrays, torch.device(device))
    assert {name: tensor.device.type for name, tensor in moved.items()} == dict.fromkeys(arrays, device)
    for name, tensor in moved.items():
        torch.testing.assert_close(tensor.cpu(), torch.from_numpy(arrays[name].copy()), rtol=0, atol=0)
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % 16 == 0
    assert len({tensor.untyped_storage().data_ptr() for tensor in moved.values()}) == 1
    moved["ids"].zero_()  # It lies beside the others, and not on them.
    torch.testing.assert_close(moved["bytes"].cpu(), torch.from_numpy(arrays["bytes"]))


@pytest.mark.gpu
@needs_gpu
def test_the_consumer_s_stream_waits_for_the_batch_and_memory_is_not_used_again_too_early() -> None:
    device = torch.device("cuda", 0)
    made_before = torch.ones(1 << 20, device=device)
    streams = []

    def batches() -> Iterator[dict]:
        for number in range(30):
            streams.append(torch.cuda.current_stream())
            torch.cuda._sleep(3_000_000)  # the producer is behind
            yield {"x": made_before * number, "nested": [torch.full((1 << 20,), number, device=device)], "n": number}

    made_before.add_(1)  # still under way when the thread starts
    sums = []
    for batch in prefetch(batches(), device):
        if batch["n"] % 2:
            torch.cuda._sleep(9_000_000)  # the consumer is behind
        sums.append(batch["x"].sum() + batch["nested"][0].sum())
        del batch
    assert torch.stack(sums).tolist() == [number * 3 * (1 << 20) for number in range(30)]
    assert torch.cuda.current_stream() not in streams


ON_THE_SECOND_GPU = """
import faulthandler
import torch
from trainers.data.loading.prefetch import prefetch
faulthandler.dump_traceback_later(100, exit=True)
device = torch.device("cuda", 1)
torch.cuda.set_device(device)
assert [batch.tolist() for batch in prefetch(iter([torch.ones(2, device=device)]), device)] == [[1, 1]]
assert not torch._C._cuda_hasPrimaryContext(0)
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_nothing_is_set_up_on_another_process_s_gpu() -> None:
    subprocess.run([sys.executable, "-c", ON_THE_SECOND_GPU], timeout=HANGS_SEC, check=True)
