"""MiniGo's network and its evaluator: size, FLOPs, weights, and what is compiled."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils.flop_counter import FlopCounterMode

from tests.trainers.models.minigo_parts import CPU, minigo, net, played
from trainers.data.selfplay import SelfPlayData
from trainers.models.minigo.network import Evaluator, GoNet, Sizes, flops, training_loss


def test_the_network_has_the_references_size_and_its_flops_are_those_that_pytorch_counts() -> None:
    sizes = Sizes()
    made = GoNet(sizes)
    # 3x3 convolutions of 17 and 9 * 2 times 32 planes to 32, two 1x1 to 2 and 1, three dense layers with biases; and of
    # each normalised output but the heads' a scale and a shift
    convolutions = 9 * 17 * 32 + 18 * 9 * 32 * 32 + 32 * 2 + 32
    dense = (2 * 81 * 82 + 82) + (81 * 64 + 64) + (64 + 1)
    assert sum(weight.numel() for weight in made.parameters()) == convolutions + dense + 2 * 19 * 32
    assert flops(sizes) == 27_719_624
    counter = FlopCounterMode(display=False)
    with counter:
        outputs = made(torch.rand(2, 17, 9, 9))
    assert counter.get_total_flops() == 2 * flops(sizes)
    assert outputs.logits.shape == (2, 82)
    assert outputs.values.shape == (2,)


def test_the_policys_head_is_not_silenced_by_large_steps() -> None:
    """A shift of its normalisation would make all its channels negative for good, and all logits equal."""
    torch.manual_seed(0)
    made = GoNet(Sizes(5, 16, 2, 32))
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0, momentum=0.9)
    for _ in range(60):
        planes = (torch.rand(128, 17, 5, 5) < 0.3).float()
        policies = torch.nn.functional.pad(planes[:, 0].flatten(1), (0, 1), value=0.1)
        policies /= policies.sum(dim=1, keepdim=True)
        outcomes = (planes[:, 0].sum(dim=(1, 2)) - planes[:, 1].sum(dim=(1, 2))).sign()
        optimizer.zero_grad()
        training_loss(made, planes, policies, outcomes, torch.full((128,), 1 / 128)).backward()
        optimizer.step()
    assert made(planes).logits.std(dim=0).mean() > 0.5


def test_flops_of_the_training_are_not_divided_by_a_time_that_holds_self_play() -> None:
    assert minigo().flops_per_sample() == 0


def test_an_evaluator_is_its_network_without_batch_normalisation_and_takes_another_ones_weights_in_place() -> None:
    first, second, planes = net(0).eval(), net(1).eval(), torch.rand(5, 17, 3, 3)
    evaluator = Evaluator(first)
    for of_evaluator, of_net in zip(evaluator(planes), first(planes), strict=True):
        torch.testing.assert_close(of_evaluator, of_net)
    before = [weight.data_ptr() for weight in evaluator._weights]
    evaluator.take(second)
    torch.testing.assert_close(evaluator(planes).logits, second(planes).logits)
    assert [weight.data_ptr() for weight in evaluator._weights] == before


def counted_compilations(monkeypatch: pytest.MonkeyPatch) -> CompileCounter:
    torch.compiler.reset()
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    return counter


def test_an_evaluator_that_was_compiled_under_autocast_is_not_compiled_again_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counter = counted_compilations(monkeypatch)
    evaluator, planes = Evaluator(net().eval(), compile=True), torch.rand(5, 17, 3, 3)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            warm = evaluator(planes)
        torch.testing.assert_close(evaluator(planes).logits, warm.logits)
    assert counter.frame_count == 1


@pytest.mark.exhaustive
def test_searches_are_compiled_by_an_example_also_without_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = counted_compilations(monkeypatch)
    module = minigo(opponents=[], gate_games=4, eval_games=1)
    module._compiles = True
    (example,) = SelfPlayData().viewed(module.view).example_batches(16, CPU)
    with torch.autocast("cpu", torch.bfloat16):
        module.training_step(example, 0)
    compiled = counter.frame_count
    assert compiled
    module.arena().self_play(0)
    module.arena().gate(0)
    assert counter.frame_count == compiled


def test_after_a_few_large_steps_a_network_plays_with_the_statistics_of_its_present_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    module = minigo(games=20)
    module._window.add(played(games=20).positions)
    optimizer = torch.optim.SGD(module.net.parameters(), lr=0.5)
    for step in range(3):
        batch = module._window.sample(64, step)
        optimizer.zero_grad()
        module.training_step(batch | {"weights": torch.full((64,), 1 / 64)}, step).backward()
        optimizer.step()
    monkeypatch.setattr(module, "_trainer", SimpleNamespace(num_training_batches=3, current_epoch=0))
    monkeypatch.setattr(module, "_gate", lambda: None)
    module.on_train_batch_end(None, batch, 2)
    planes = module._window.sample(512, 9)["planes"]
    in_training = module.net.train()(planes)
    for of_evaluator, of_batch in zip(Evaluator(module.net)(planes), in_training, strict=True):
        assert (of_evaluator - of_batch).abs().mean() < 0.06
