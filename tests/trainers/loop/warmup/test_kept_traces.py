"""A later process loads PyTorch's kept traces. If it cannot, the function is compiled as usual."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from trainers.loop.warmup import kept_sources, kept_traces
from trainers.loop.warmup.kept_traces import KeptTraces
from trainers.models import resnet
from trainers.ops import compiling

# Compiling takes seconds, and the compiler's own imports warn.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Memory(dict[str, bytes]):
    """A store in memory."""

    read = dict.get
    remove = dict.pop

    def write(self, name: str, content: bytes) -> None:
        self[name] = content


def loss(net: nn.Module, values: torch.Tensor, scale: float) -> torch.Tensor:
    out: torch.Tensor = net(values).square().sum() * scale
    return out


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


@pytest.fixture(autouse=True)
def inductor(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Share PyTorch's compiled C++ between tests: only the first waits for it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "kept-traces"))
    yield
    torch._dynamo.reset()


def counts() -> tuple[int, int]:
    """Return how many functions were loaded and kept so far."""
    return len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)


def trained(function: Any, scale: float = 2.0, train: bool = True) -> list[torch.Tensor]:
    """Return the loss, the gradients and the buffers of a step of a new network."""
    net = network().train(train)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)  # as after an earlier step
    value = function(net, torch.arange(12.0).view(3, 4), scale)
    value.backward()
    return [value.detach(), *(parameter.grad for parameter in net.parameters()), *net.buffers()]


def assert_same(first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)  # Normalised values cancel in the gradients.


def test_a_later_process_traces_nothing_and_computes_the_same() -> None:
    store, before = Memory(), counts()
    first = trained(KeptTraces(store, loss, {}))
    torch._dynamo.reset()  # A new process begins so.
    second = trained(KeptTraces(store, loss, {}))
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1]
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert_same(second, trained(loss))


@pytest.mark.exhaustive
def test_another_scale_mode_or_network_is_compiled_for_itself() -> None:
    kept = KeptTraces(store := Memory(), loss, {})
    for scale, train in ((2.0, True), (3.0, True), (2.0, False)):
        assert_same(trained(kept, scale, train), trained(loss, scale, train))
    assert len(store) == 3


def test_what_guards_refuse_is_compiled_as_usual() -> None:
    kept, net, values = KeptTraces(Memory(), loss, {}), network(), torch.ones(3, 4)
    kept(net, values, 1.0)
    net[1].momentum = 0.5  # The arguments still look alike.
    before = counts()
    kept(net, values, 1.0)
    assert counts() == before
    assert not next(iter(kept._by_situation.values())).guard_check(net, values, 1.0)


def test_a_damaged_trace_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    trained(KeptTraces(store := Memory(), loss, {}))
    [name] = store
    store[name] = store[name][:-100]
    assert_same(trained(KeptTraces(store, loss, {})), trained(loss))
    assert store[name].endswith(b"}\n")
    before = counts()
    trained(KeptTraces(store, loss, {}))
    assert counts() == before, "not tried again"
    assert "is traced anew" in caplog.text


def test_what_is_only_kept_runs_without_its_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_calls: list[int] = []
    monkeypatch.setattr(kept_traces, "_begin_call", lambda: compiled_calls.append(1))
    kept = KeptTraces(store := Memory(), loss, {})
    with kept_traces.only_kept():
        first = trained(kept)
    assert store
    assert not compiled_calls
    assert_same(first, trained(kept))
    assert compiled_calls == [1]


class CompilerError(Exception):
    """As the compiler raises it for an error of any kind within."""

    inner_exception = torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(("error", "marked"), [(CompilerError, False), (OSError, False), (ValueError, True)])
def test_a_lack_of_memory_is_no_reason_to_keep_nothing_for_good(
    error: type[Exception], marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise error("x")

    kept = KeptTraces(store := Memory(), loss, {})
    monkeypatch.setattr(kept, "_compiled", fail)
    assert kept._obtained((network(), torch.ones(3, 4), 1.0)) is None
    assert bool(store) == marked
    with kept_traces.only_kept():
        kept = KeptTraces(helper_store := Memory(), loss, {})
        monkeypatch.setattr(kept, "_compiled", fail)
        kept(network(), torch.ones(3, 4), 1.0)
    assert not helper_store


def test_after_an_edit_it_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trained(KeptTraces(store := Memory(), loss, {}))
    [content] = store.values()
    monkeypatch.setattr(kept_sources, "_digest", lambda module: "edited")
    before = counts()
    trained(KeptTraces(store, loss, {}))
    assert counts() == (before[0], before[1] + 1)
    assert list(store.values()) != [content]


def test_a_file_of_kernels_counts_as_a_source_of_every_trace() -> None:
    sources = kept_sources._sources({"torch.nn"})
    assert sources.keys() >= {compiling.__name__, "torch.nn"}
    assert "torch" not in sources


def test_what_was_edited_while_it_compiled_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_sources, "IMPORTED", 0.0)
    KeptTraces(store := Memory(), loss, {})._write("name", set(), b"")
    assert not store


def test_settings_that_no_text_of_a_layer_shows_are_in_the_key() -> None:
    def name(**settings: Any) -> str:
        net = network()
        vars(net[0]).update(settings)
        return KeptTraces(Memory(), loss, {})._name((net,))

    assert name(scale=2) == name(scale=2)
    assert len({name(scale=2), name(scale=3), name(act=torch.relu), name(act=torch.tanh)}) == 4


def test_gpus_of_one_kind_share_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(uuid: str, kind: str) -> str:
        gpu = SimpleNamespace(uuid=uuid, name=kind, major=9, minor=0, multi_processor_count=132, total_memory=1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
        return KeptTraces(Memory(), loss, {})._name((torch.ones(2),))

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert name("first", "H100") == name("second", "H100")
    assert name("first", "H100") != name("first", "H200")


def test_processes_with_more_or_fewer_cores_share_a_trace_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(name="H200", major=9, minor=0, multi_processor_count=132, total_memory=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    store, before, usual = Memory(), counts(), torch.get_num_threads()
    for number in (usual + 1, usual):
        torch.set_num_threads(number)
        trained(KeptTraces(store, loss, {}))
        assert torch.get_num_threads() == number
        torch._dynamo.reset()
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1]


def test_code_for_a_cpu_is_for_its_number_of_threads() -> None:
    usual, names = torch.get_num_threads(), set[str]()
    for number in (usual + 1, usual):
        torch.set_num_threads(number)
        names.add(KeptTraces(Memory(), loss, {})._name((torch.ones(2),)))
    assert len(names) == 2


def test_it_runs_eagerly_where_pytorch_is_told_to() -> None:
    with torch.compiler.set_stance("force_eager"):
        trained(KeptTraces(store := Memory(), loss, {}))
    assert not store


def test_traces_of_this_project_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's guards of a kept trace pass over globals, so a setting of a user's function could have changed."""
    monkeypatch.setattr(compiling, "keeper", lambda function, options: "kept")
    monkeypatch.setattr(torch, "compile", lambda function, **options: "usual")
    net, device = network(), torch.device("cpu")
    functions: list[Any] = [loss, net, net.forward, lambda values: net(values), partial(loss, net)]
    assert [compiling.compiled(function, device) for function in functions] == ["usual"] * 5
    assert compiling.compiled(resnet.evaluate, device) == "kept"
    assert compiling.compiled(resnet.evaluate, device, keep=False) == "usual"


def test_arguments_by_name_are_compiled_as_usual() -> None:
    kept = KeptTraces(store := Memory(), loss, {})
    kept(network(), values=torch.ones(3, 4), scale=1.0)
    assert not store


def test_two_lists_of_tensors_and_a_graph_without_gradients(tmp_path: Path) -> None:
    def added(parts: list[torch.Tensor]) -> torch.Tensor:
        return parts[0] + parts[1]

    with torch.no_grad():
        assert KeptTraces(Memory(), added, {})([torch.ones(2), torch.ones(2)]).tolist() == [2, 2]
