"""What the tests of several files here start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

COMPILER_WARNINGS = (
    "ignore::DeprecationWarning:torch",  # of its own imports
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # its looking at inputs
    "ignore:The CUDA Graph is empty",  # when it sets its graphs up
    "ignore:TensorFloat32 tensor cores",  # its advice, where fp32 is meant
    "ignore:(?s).*Online softmax is disabled",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the warnings of PyTorch's compiler on a GPU."""
    for item in items:
        if item.get_closest_marker("gpu"):
            for warning in COMPILER_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the caches of tests apart from the user's."""
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
