"""What the tests of several files here start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept between runs is not that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIMETRIAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Batches this small gain little from a second thread, which spins, and costs most where cores are shared."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)
