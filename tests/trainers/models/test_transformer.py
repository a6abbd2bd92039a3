"""The Transformer against PyTorch's own layers, packed rows against single sentences, sizes and schedule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import ConfigError
from tests.trainers.data.text.files import random_corpus
from tests.trainers.processes import ALONE, CPU
from trainers.data.text import BEGIN, END, PAD, TextView
from trainers.data.text.data import Held, TextData
from trainers.data.text.loader import batch as batch_of
from trainers.data.text.loader import dealt
from trainers.data.text.vocabulary import Numbered
from trainers.models import translator
from trainers.models.transformer import TransformerTranslator
from trainers.models.transformer.module import RootSchedule, forward_flops, training_loss
from trainers.models.transformer.network import Decoding, Sizes, Transformer, unpacked

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = Sizes(layers=2, width=16, hidden=24, heads=2, dropout=0.0)
TOKENS = 40


def text(num: int = 60) -> TextData:
    held = random_corpus(8, seed=1)
    return TextData("text", Numbered(TOKENS), random_corpus(num), Held(held, [str(number) for number in range(8)]))


def module(**hparams: Any) -> TransformerTranslator:
    sizes = {
        "layers": 2,
        "width": 16,
        "hidden": 24,
        "heads": 2,
        "max_length": 16,
        "pack_length": 32,
        "warmup_steps": 10,
    }
    return TransformerTranslator(text(), 1.0, 0.0, **({"epochs": 2} | sizes | hparams))


def pair_batch() -> dict[str, Any]:
    """Eight rows of one sentence each, of all lengths from 3 on, with padding."""
    train = text().train
    source, target = train.lengths()
    pairs = np.flatnonzero(np.minimum(source, target) > 2)[:8]
    width, num_targets = (int(source[pairs].max()), int(target[pairs].max())), int(target[pairs].sum())
    return batch_of(train, dealt(pairs, len(pairs), ALONE, width, num_targets), CPU, 1 / num_targets)


def places(batch: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    if "source_place" in batch:
        names = ("source_place", "source_sentence", "target_place", "target_sentence")
        return tuple(batch[name] for name in names)
    return (*unpacked(batch["source"]), *unpacked(batch["labels"]))


def loss_of(network: Transformer, batch: dict[str, Any], smoothing: float = 0.1) -> torch.Tensor:
    tensors = (batch["source"], batch["inputs"], batch["labels"], batch["weights"])
    return training_loss(network, *tensors, places(batch), smoothing)


def torch_layers(network: Transformer) -> nn.Transformer:
    """PyTorch's Transformer with the same weights; its biases of attention, which ours lacks, are zero."""
    theirs = nn.Transformer(
        TINY.width, TINY.heads, TINY.layers, TINY.layers, TINY.hidden, 0.0, batch_first=True, norm_first=True,
        layer_norm_eps=1e-6,
    )  # fmt: skip
    for ours, layers in ((network.encoder, theirs.encoder.layers), (network.decoder, theirs.decoder.layers)):
        for own, layer in zip(ours, layers, strict=True):
            names: dict[str, Any] = {
                "self_attn.in_proj_weight": own.own.parts.weight, "self_attn.out_proj.weight": own.own.out.weight,
                "norm1": own.own_norm, "linear1": own.widen, "linear2": own.narrow,
                "norm3" if layers is theirs.decoder.layers else "norm2": own.dense_norm,
            }  # fmt: skip
            if layers is theirs.decoder.layers:
                both = torch.cat((own.source.parts.weight, own.source.source_parts.weight))
                names |= {
                    "multihead_attn.in_proj_weight": both,
                    "multihead_attn.out_proj.weight": own.source.out.weight,
                }
                names |= {"norm2": own.source_norm}
            for name, given in names.items():
                copies = {"": given} if isinstance(given, torch.Tensor) else dict(given.named_parameters(prefix="."))
                for suffix, tensor in copies.items():
                    layer.get_parameter(name + suffix.replace("..", ".")).data.copy_(tensor)
            for name, parameter in layer.named_parameters():
                if name.endswith(("in_proj_bias", "out_proj.bias")):
                    parameter.data.zero_()
    for norm, given in ((theirs.encoder.norm, network.encoder_norm), (theirs.decoder.norm, network.decoder_norm)):
        assert norm is not None
        norm.load_state_dict(given.state_dict())
    return theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_loss_and_gradients_are_those_of_pytorchs_layers_with_the_same_weights() -> None:
    torch.manual_seed(0)
    network = Transformer(TOKENS, TINY)
    theirs, batch = torch_layers(network), pair_batch()
    loss = loss_of(network, batch)
    loss.backward()

    embedding = network.embedding.weight.detach().clone().requires_grad_()
    rates = torch.tensor([1e4 ** (-place / (TINY.width // 2 - 1)) for place in range(TINY.width // 2)])

    def embed(ids: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(ids.shape[1])[:, None] * rates
        return embedding[ids] * math.sqrt(TINY.width) + torch.cat((angles.sin(), angles.cos()), dim=1)

    source, labels = batch["source"], batch["labels"]
    causal = torch.full((labels.shape[1], labels.shape[1]), True).triu(1)
    hidden = source == PAD
    states = theirs(
        embed(source), embed(batch["inputs"]), tgt_mask=causal, src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )  # fmt: skip
    logs = (states @ embedding.T).log_softmax(dim=2)
    wanted = 0.1 / TOKENS + 0.9 * F.one_hot(labels, TOKENS)
    expected = -((wanted * logs).sum(dim=2) * batch["weights"]).sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert 0 < loss.item() < 20
    assert network.embedding.weight.grad is not None
    torch.testing.assert_close(network.embedding.weight.grad, embedding.grad, rtol=1e-4, atol=1e-6)
    first, last = theirs.encoder.layers[0], theirs.decoder.layers[-1]
    ours = (network.encoder[0].own.parts, network.decoder[-1].narrow, network.decoder[-1].source.out)
    grads = (first.self_attn.in_proj_weight, last.linear2.weight, last.multihead_attn.out_proj.weight)
    for own, their in zip(ours, grads, strict=True):
        torch.testing.assert_close(own.weight.grad, their.grad, rtol=1e-4, atol=1e-6)


def test_packed_rows_give_the_loss_and_gradients_of_single_sentences() -> None:
    torch.manual_seed(0)
    network, data = Transformer(TOKENS, TINY), text().viewed(TextView(16, pack_length=32))
    total, weight = torch.zeros(()), 0.0
    for batch in data.train_loader(2048, 1, ALONE):
        total = total + loss_of(network, batch)
        weight += 1
    total.backward()
    packed = {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    network.zero_grad()
    corpus = data.train
    num_targets = int(corpus.lengths()[1].sum())
    single = torch.zeros(())
    for number in range(len(corpus)):
        source = torch.tensor([[*corpus.source[corpus.source_start[number] : corpus.source_start[number + 1]], END]])
        said = corpus.target[corpus.target_start[number] : corpus.target_start[number + 1]].tolist()
        labels = torch.tensor([[*said, END]])
        alone = {
            "source": source.long(), "inputs": torch.tensor([[BEGIN, *said]]), "labels": labels,
            "weights": torch.full(labels.shape, 1 / num_targets),
        }  # fmt: skip
        single = single + loss_of(network, alone)
    single.backward()
    assert weight == 1
    assert total.item() == pytest.approx(single.item(), rel=1e-5)
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(packed[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_a_token_at_a_time_gives_what_the_whole_gives_also_of_reordered_hypotheses() -> None:
    torch.manual_seed(0)
    network, batch = Transformer(TOKENS, TINY).eval(), pair_batch()
    source, inputs = batch["source"], batch["inputs"]
    whole = network(source, inputs, *unpacked(source), *unpacked(inputs)).log_softmax(dim=2)
    decoding, width = Decoding(network, source, beam=2), inputs.shape[1]
    other = inputs.flip(0)  # the second hypothesis of each sentence says what another sentence has
    length = min(int((row != PAD).sum()) for row in inputs)
    assert length > 2 < width
    num = len(source)
    for place in range(length):
        swapped = place % 2 == 1
        tokens = torch.stack((inputs[:, place], other[:, place]), dim=1)
        if swapped:
            tokens = tokens.flip(1)
            decoding.reorder(torch.arange(2 * num).view(num, 2).flip(1).flatten())
        probabilities, _ = decoding.step(tokens)
        torch.testing.assert_close(probabilities[:, int(swapped)], whole[:, place], rtol=1e-4, atol=1e-5)
        if swapped:
            decoding.reorder(torch.arange(2 * num).view(num, 2).flip(1).flatten())


def test_transformer_big_has_mlperfs_parameters_and_one_embedding() -> None:
    with torch.device("meta"):
        network = Transformer(33_708, Sizes())
    assert sum(parameter.numel() for parameter in network.parameters()) == 210_804_736
    assert [name for name, parameter in network.named_parameters() if 33_708 in parameter.shape] == ["embedding.weight"]


def test_the_rate_is_the_published_one() -> None:
    schedule = RootSchedule(2.0, 1024, 16_000)
    for step in (1, 100, 16_000, 40_000):
        expected = 2.0 * 1024**-0.5 * min(1, step / 16_000) / math.sqrt(max(step, 16_000))
        assert schedule.at(step) == pytest.approx(expected)
    assert schedule.at(16_000) == pytest.approx(4.94e-4, rel=1e-3)
    optimizer = module(betas=[0, 0.98]).configure_optimizers()
    assert optimizer.defaults["betas"] == (0.0, 0.98)
    assert optimizer.defaults["eps"] == 1e-9


def test_dropout_is_on_in_training_alone() -> None:
    torch.manual_seed(0)
    network, batch = Transformer(TOKENS, Sizes(2, 16, 24, 2, dropout=0.5)), pair_batch()
    assert loss_of(network, batch).item() != loss_of(network, batch).item()
    network.eval()
    assert loss_of(network, batch).item() == loss_of(network, batch).item()


def test_the_stated_flops_are_those_that_pytorch_counts() -> None:
    network = Transformer(TOKENS, TINY)
    source, inputs = torch.full((3, 10), 5), torch.full((3, 8), 6)
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        network(source, inputs, *unpacked(source), *unpacked(inputs))
    stated = forward_flops(TINY, TOKENS, (10, 8, 100, 80, 64))
    assert counter.get_total_flops() == 3 * stated
    big = 3 * forward_flops(Sizes(), 33_708, (1, 1, 0, 0, 0))
    assert big == pytest.approx(1.26e9, rel=0.01)  # a pair of one token each, as published
    assert module().flops_per_sample() > 0


def test_translations_are_counted_and_the_warm_ups_are_not() -> None:
    translator = module().eval()
    for batch in translator_data(translator).example_batches(128, CPU):
        translator.validation_step(batch, 0)
    assert translator.metrics() == {"bleu": 0.0}
    for batch in text().eval_loader(128, ALONE) or ():
        translator.validation_step(batch, 0)
    assert sum(len(references) for references, _ in translator._translated) == 8
    assert set(translator.metrics()) == {"bleu"}


def translator_data(translator: TransformerTranslator) -> TextData:
    return text().viewed(translator.view)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"width": 18}, r"model.hparams.width=18: must be a multiple of 2 \* heads=2"),
        ({"pack_length": 8}, "model.hparams.pack_length=8: must be max_length=16 or more"),
        ({"max_length": 1}, "model.hparams.max_length=1: must be a whole number, 2 or more"),
        ({"dropout": 1.0}, "model.hparams.dropout=1.0: must be from 0 to below 1"),
        ({"dropout": "x"}, "model.hparams.dropout=x: must be from 0 to below 1"),
        ({"label_smoothing": -0.1}, "model.hparams.label_smoothing=-0.1: must be"),
        ({"beam": 0}, "model.hparams.beam=0: must be a whole number of hypotheses"),
        ({"eval_batch_size": 0}, "model.hparams.eval_batch_size=0: must be a whole number of tokens"),
        ({"epochs": 0}, "model.hparams.epochs=0: must be a whole number, 1 or more"),
        ({"betas": [0.9]}, r"model.hparams.betas=\[0.9\]: must be two numbers from 0 to below 1"),
        ({"epsilon": -1e-9}, "model.hparams.epsilon=-1e-09: must be a number above 0"),
        ({"alpha": "x"}, "model.hparams.alpha=x: must be from 0 to 10"),
    ],
)
def test_sizes_that_cannot_be_are_refused(hparams: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        module(**hparams)


@pytest.mark.slow
def test_the_step_is_one_graph() -> None:
    network, batch = Transformer(TOKENS, TINY), pair_batch()
    expected = loss_of(network, batch)
    whole = torch.compile(training_loss, backend="eager", fullgraph=True, dynamic=False)
    tensors = (batch["source"], batch["inputs"], batch["labels"], batch["weights"])
    assert whole(network, *tensors, places(batch), 0.1).item() == pytest.approx(expected.item())


def test_cudnn_plans_no_step_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*arguments: Any) -> list[bool]:
        return [torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()]

    monkeypatch.setattr(translator, "beam_search", search)
    assert module().translate(torch.tensor([[5, END]])) == [False, True]
    assert torch.backends.cuda.cudnn_sdp_enabled()
