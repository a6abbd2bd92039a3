"""GNMT against LSTM cells that go over one sentence at a time, its sizes, schedule and clipping."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conf.schema import ConfigError
from tests.trainers.models.test_transformer import TOKENS, pair_batch, text
from tests.trainers.processes import ALONE, CPU
from trainers.data.text import PAD
from trainers.models.gnmt import GnmtTranslator
from trainers.models.gnmt.module import HalvingSchedule, forward_flops
from trainers.models.gnmt.network import Decoding, Gnmt, Sizes, attend, classified_loss

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = Sizes(layers=4, width=12, dropout=0.0)


def module(**hparams: Any) -> GnmtTranslator:
    return GnmtTranslator(text(), 1e-3, 0.0, **({"epochs": 2, "layers": 2, "width": 8, "max_length": 16} | hparams))


def loss_of(network: Gnmt, batch: dict[str, Any], smoothing: float = 0.1) -> torch.Tensor:
    x = network(batch["source"], batch["inputs"])
    return classified_loss(network.classifier, x, batch["labels"], batch["weights"], smoothing)


def over(layer: nn.LSTM, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of an LSTM's equations, a token at a time."""
    hidden = cell = torch.zeros(layer.hidden_size)
    outputs = []
    for x in inputs:
        gates = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ hidden + layer.bias_hh_l0
        entering, forgetting, new, leaving = gates.chunk(4)
        cell = forgetting.sigmoid() * cell + entering.sigmoid() * new.tanh()
        hidden = leaving.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return outputs


def logits_of(network: Gnmt, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The result for a single sentence without padding."""
    own: Any = network
    embedded = [own.embedding.weight[token] for token in source]
    backwards = over(own.backwards, embedded[::-1])[::-1]
    x = [torch.cat(pair) for pair in zip(over(own.forwards, embedded), backwards, strict=True)]
    x = over(own.encoder[0], x)
    for layer in own.encoder[1:]:
        x = [before + after for before, after in zip(x, over(layer, x), strict=True)]
    memory, part = torch.stack(x), own.attention
    vector = part.length * part.direction / part.direction.square().sum().sqrt()
    y = over(own.first, [own.embedding.weight[token] for token in inputs])
    seen = []
    for asking in y:
        scores = torch.stack(
            [vector @ torch.tanh(part.query.weight @ asking + part.key.weight @ m + part.bias) for m in memory]
        )
        seen.append(scores.softmax(0) @ memory)
    for number, layer in enumerate(own.decoder):
        added = over(layer, [torch.cat(pair) for pair in zip(y, seen, strict=True)])
        y = added if number == 0 else [before + after for before, after in zip(y, added, strict=True)]
    return torch.stack(y) @ own.classifier.weight.T + own.classifier.bias


def test_loss_and_gradients_are_those_of_cells_that_see_one_sentence_at_a_time() -> None:
    torch.manual_seed(0)
    network, batch = Gnmt(TOKENS, TINY), pair_batch()
    loss = loss_of(network, batch)
    loss.backward()
    own = {name: parameter.grad for name, parameter in network.named_parameters()}
    network.zero_grad()
    expected = torch.zeros(())
    for source, inputs, labels, weights in zip(
        batch["source"], batch["inputs"], batch["labels"], batch["weights"], strict=True
    ):
        num = int((labels != PAD).sum())
        logs = logits_of(network, source[source != PAD], inputs[:num]).log_softmax(dim=1)
        wanted = 0.1 / TOKENS + 0.9 * F.one_hot(labels[:num], TOKENS)
        expected = expected - ((wanted * logs).sum(dim=1) * weights[:num]).sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(own[name], parameter.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_a_token_at_a_time_gives_what_the_whole_gives_also_of_reordered_hypotheses() -> None:
    torch.manual_seed(0)
    network, batch = Gnmt(TOKENS, TINY).eval(), pair_batch()
    source, inputs = batch["source"], batch["inputs"]
    whole = network.classifier(network(source, inputs)).log_softmax(dim=2)
    decoding, num = Decoding(network, source), len(source)
    length = min(int((row != PAD).sum()) for row in inputs)
    assert length > 2
    turned = torch.arange(2 * num).view(num, 2).flip(1).flatten()
    for place in range(length):
        tokens = torch.stack((inputs[:, place], inputs.flip(0)[:, place]), dim=1)
        if place % 2:
            decoding.reorder(turned)
        probabilities, looked = decoding.step(tokens.flip(1) if place % 2 else tokens)
        torch.testing.assert_close(probabilities[:, place % 2], whole[:, place], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(looked.sum(dim=2), torch.ones(num, 2))
        assert not looked.transpose(0, 1)[:, source == PAD].any()
        if place % 2:
            decoding.reorder(turned)


def test_gnmt_has_its_published_parameters_and_one_embedding_of_both_languages() -> None:
    with torch.device("meta"):
        network = Gnmt(32_320, Sizes())
    assert sum(parameter.numel() for parameter in network.parameters()) == 160_671_297
    names = [name for name, parameter in network.named_parameters() if 32_320 in parameter.shape]
    assert names == ["embedding.weight", "classifier.weight", "classifier.bias"]


def test_first_weights_are_the_reference_s() -> None:
    torch.manual_seed(0)
    network = Gnmt(64, Sizes(layers=3, width=32, initial=0.1))
    own = dict(network.named_parameters())
    zero = {name for name, parameter in own.items() if not parameter.any()}
    assert zero == {name for name in own if name.endswith("bias_hh_l0")} | {"attention.bias"}
    assert own["attention.length"].item() == pytest.approx(32**-0.5)
    assert not own["embedding.weight"][PAD].any()
    for name in own.keys() - zero - {"attention.length"}:
        assert 0.08 < own[name].abs().max() <= 0.1


def test_the_stated_flops_are_the_published_ones() -> None:
    pair = 3 * forward_flops(Sizes(), 32_320, (1, 1, 0, 0, 0))
    assert pair / 2 == pytest.approx(382e6, rel=0.005)  # a total token, without attention
    assert forward_flops(Sizes(), 32_320, (1, 1, 0, 1, 0)) - pair / 3 == 4 * 1024
    assert module().flops_per_sample() > 0


def test_the_rate_rises_to_its_height_and_is_halved_four_times_at_the_end() -> None:
    schedule = HalvingSchedule(1e-3, 200, 0.666, 4, 10_000)
    assert schedule.at(0) == pytest.approx(1e-5)
    assert schedule.at(100) == pytest.approx(1e-4)
    assert [schedule.at(step) for step in (200, 6659)] == [1e-3, 1e-3]
    interval = (10_000 - 6_660) // 4
    halved = [6_660 + number * interval for number in range(4)]
    assert [schedule.at(step) for step in halved] == pytest.approx([5e-4, 2.5e-4, 1.25e-4, 6.25e-5])
    assert [schedule.at(step - 1) for step in halved] == pytest.approx([1e-3, 5e-4, 2.5e-4, 1.25e-4])
    assert schedule.at(9_999) == pytest.approx(6.25e-5)


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_gradients_are_clipped_by_the_norm_of_all_also_where_they_are_scaled(scale: float | None) -> None:
    mean = text().viewed(module().view).mean_lengths()[1]
    translator = module(clip_norm=0.5 * mean)  # that of the loss of a sentence, of so many tokens
    scaler = None if scale is None else SimpleNamespace(_get_scale_async=lambda: torch.tensor(scale))
    plugin = SimpleNamespace(scaler=scaler)
    translator._trainer = SimpleNamespace(precision_plugin=plugin)  # type: ignore[assignment]
    for factor, expected in ((3.0, 0.5), (0.1, 0.1)):
        for parameter in translator.parameters():
            parameter.grad = torch.randn_like(parameter)
        norm = nn.utils.get_total_norm(
            [parameter.grad for parameter in translator.parameters() if parameter.grad is not None]
        )
        for parameter in translator.parameters():
            assert parameter.grad is not None
            parameter.grad *= factor / norm * (scale or 1.0)
        translator.configure_gradient_clipping(None)
        after = nn.utils.get_total_norm(
            [parameter.grad for parameter in translator.parameters() if parameter.grad is not None]
        )
        assert float(after) / (scale or 1.0) == pytest.approx(expected, rel=1e-4)


def test_dropout_is_on_in_training_alone() -> None:
    torch.manual_seed(0)
    network, batch = Gnmt(TOKENS, Sizes(2, 8, 0.5)), pair_batch()
    assert loss_of(network, batch).item() != loss_of(network, batch).item()
    network.eval()
    assert loss_of(network, batch).item() == loss_of(network, batch).item()


def test_it_translates_with_coverage() -> None:
    translator = module(coverage=0.2).eval()
    for batch in text().viewed(translator.view).example_batches(128, CPU):
        translator.validation_step(batch, 0)
    for batch in text().eval_loader(128, ALONE) or ():
        translator.validation_step(batch, 0)
    assert set(translator.metrics()) == {"bleu"}


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"layers": 1}, r"model.hparams.layers=1: must be a whole number, 2 or more"),
        ({"num_shapes": 0}, r"model.hparams.num_shapes=0: must be a whole number, 1 or more"),
        ({"dropout": "0.2"}, r"model.hparams.dropout=0.2: must be from 0 to below 1"),
        ({"dropout": True}, r"model.hparams.dropout=True: must be from 0 to below 1"),
        ({"remain": "much"}, r"model.hparams.remain=much: must be a share of all steps"),
        ({"remain": 1.5}, r"model.hparams.remain=1.5: must be a share of all steps"),
        ({"clip_norm": 0}, r"model.hparams.clip_norm=0: must be a number above 0"),
        ({"betas": [1.5, 0.9]}, r"model.hparams.betas=\[1.5, 0.9\]: must be two numbers from 0 to below 1"),
        ({"epsilon": 0}, r"model.hparams.epsilon=0: must be a number above 0"),
        ({"alpha": 1e30}, r"model.hparams.alpha=1e\+30: must be from 0 to 10"),
        ({"coverage": -0.1}, r"model.hparams.coverage=-0.1: must be from 0 to 10"),
        ({"graph_steps": "maybe"}, r"model.hparams.graph_steps='?maybe'?: must be true or false"),
        ({"eval_batch_size": 0}, r"model.hparams.eval_batch_size=0: must be a whole number of tokens"),
        ({"warmup_steps": -1}, r"model.hparams.warmup_steps=-1: must be a whole number, 0 or more"),
    ],
)
def test_sizes_that_cannot_be_are_refused(hparams: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        module(**hparams)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # the compiler's look at inputs
def test_attention_and_loss_are_a_graph_each_of_all_shapes() -> None:
    translator = module(
        width=14, dropout=0.0
    )  # no other size is equal to it, or to each other, or the graph would be of such alone
    batch = {name: part for name, part in pair_batch().items() if isinstance(part, torch.Tensor)}
    batches = [
        {name: part[:rows, : width if name == "source" else width - 2] for name, part in batch.items()}
        for rows, width in ((7, 11), (4, 6))
    ]
    expected = [translator.training_step(part, 0).item() for part in batches]
    options: dict[str, Any] = {"backend": "eager", "fullgraph": True, "dynamic": True}
    translator._loss = torch.compile(classified_loss, **options)
    translator.net.attention.attend = torch.compile(attend, **options)
    translator.training_step(batches[0], 0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert [translator.training_step(part, 0).item() for part in batches] == pytest.approx(expected)
