"""The language model against a plain one, its size, its FLOPs, its batches, its options, and that it learns."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import nn

from conf.schema import ConfigError
from tests.trainers.processes import ALONE
from trainers.data.language import IGNORED, LanguageData, grammar
from trainers.models.gpt import LanguageModel
from trainers.models.gpt.layers import Sizes
from trainers.models.gpt.network import GPT, flops_per_token
from trainers.workload import Batch

SIZES = {"layers": 2, "width": 32, "heads": 2, "vocabulary": 48}
pytestmark = pytest.mark.usefixtures("one_thread")


def language(**options: Any) -> LanguageData:
    return grammar(
        **{"vocabulary": 40, "order": 1, "branches": 4, "sequence_length": 16, "train_tokens": 64_000,
           "validation_tokens": 640, **options}
    )  # fmt: skip


def model(data: LanguageData | None = None, learning_rate: float = 0.025, **options: Any) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(data or language(), learning_rate, **{"weight_decay": 0.05, "steps": 100, **SIZES, **options})


class PlainLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attention(rms(x) * self.norm1))
        return x + self.narrow(self.widen(rms(x) * self.norm2).relu() ** 2)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        length, width = x.shape[1], x.shape[2] // self.heads
        seen = []
        for head in range(self.heads):
            query, key, value = (part(x)[:, :, head * width : (head + 1) * width] for part in (self.q, self.k, self.v))
            scores = 0.12 * turned(rms(query)) @ turned(rms(key)).transpose(1, 2)
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            seen.append(scores.masked_fill(hidden, -math.inf).softmax(dim=2) @ value)
        return torch.cat(seen, dim=2)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()


def turned(x: torch.Tensor) -> torch.Tensor:
    """Takes (i, i + half) for complex numbers, and turns the first half of them."""
    half, quarter = x.shape[2] // 2, x.shape[2] // 4
    rates = [1024 ** -(number / (quarter - 1)) for number in range(quarter)] + [0.0] * quarter
    angles = torch.arange(x.shape[1])[:, None] * torch.tensor(rates)
    pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), -angles)
    return torch.cat((pairs.real, pairs.imag), dim=2)


class Plain(nn.Module):
    """The published definition, head by head and logit by logit, as it could be written down."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.layers = nn.ModuleList(PlainLayer(width, heads) for _ in range(layers))
        self.embedding_norm, self.last_norm = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = rms(self.embedding(inputs)) * self.embedding_norm
        for own in self.layers:
            x = own(x)
        logits = self.head(rms(x) * self.last_norm)
        capped = 15 * logits / (logits**2 + 15**2).sqrt()
        return F.cross_entropy(capped.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def plain_of(net: GPT) -> Plain:
    plain = Plain(**{name: getattr(net.sizes, name) for name in SIZES})
    with torch.no_grad():
        names = {"embedding.weight": net.embedding, "head.weight": net.head, "head.bias": net.head_bias}
        names |= {"embedding_norm": net.embedding_norm, "last_norm": net.last_norm}
        for number, own in enumerate(net.layers):
            ours = dict(own.named_parameters())
            of_layer = {"norm1": ours["norm1"], "norm2": ours["norm2"]}
            for place, name in enumerate("qkv"):
                of_layer |= {f"{name}.weight": ours["parts"][place], f"{name}.bias": ours["parts_bias"][place]}
            for name in ("out", "widen", "narrow"):
                of_layer |= {f"{name}.weight": ours[name], f"{name}.bias": ours[f"{name}_bias"]}
            names |= {f"layers.{number}.{name}": tensor for name, tensor in of_layer.items()}
        plain.load_state_dict(names)
    return plain


class PlainMuon:
    """Muon of each matrix by itself, as published, and AdamW in plain numbers."""

    def __init__(self, net: Plain, lr: float, epsilon: float) -> None:
        self.net, self.lr, self.epsilon, self.step_number = net, lr, epsilon, 0
        self.kept: dict[str, list[torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        self.step_number += 1
        for name, parameter in self.net.named_parameters():
            gradient = parameter.grad
            assert gradient is not None
            kept = self.kept.setdefault(name, [torch.zeros_like(parameter), torch.zeros_like(parameter)])
            if parameter.ndim == 2 and name.startswith("layers"):
                self.muon(parameter, gradient, kept[0])
            else:
                rate = 28.0 if name.startswith("embedding.") else 0.16 if name == "head.weight" else 0.6
                self.adamw(parameter, gradient, kept, rate * self.lr)

    def muon(self, parameter: torch.Tensor, gradient: torch.Tensor, momentum: torch.Tensor) -> None:
        momentum.mul_(0.95).add_(0.05 * gradient)
        x = 0.05 * gradient + 0.95 * momentum
        x = x / (x.norm() + 1e-7)  # The first gradients of most matrices are zero.
        for _ in range(12):
            x = 2 * x - 1.5 * (x @ x.T) @ x + 0.5 * (x @ x.T) @ (x @ x.T) @ x
        rows, columns = parameter.shape
        parameter.mul_(1 - self.lr * 0.05).sub_(self.lr * max(1, rows / columns) ** 0.5 * x)

    def adamw(self, parameter: torch.Tensor, gradient: torch.Tensor, kept: list[torch.Tensor], lr: float) -> None:
        parameter.mul_(1 - lr * 0.001)
        for moment, power, beta in ((kept[0], 1, 0.8), (kept[1], 2, 0.95)):
            moment.mul_(beta).add_((1 - beta) * gradient**power)
        first = kept[0] / (1 - 0.8**self.step_number)
        second = kept[1] / (1 - 0.95**self.step_number)
        parameter.sub_(lr * first / (second.sqrt() + self.epsilon))


@pytest.mark.parametrize("steps", [12, pytest.param(100, marks=[pytest.mark.exhaustive, pytest.mark.slow])])
def test_losses_are_those_of_a_plain_model_trained_as_published(steps: int) -> None:
    """At a tenth of the rates: at the published ones rounding errors grow beyond the tolerance."""
    data = language()
    module = model(data, learning_rate=0.0025, micro_batch_size=128, epsilon=1e-8)
    plain = plain_of(module.net)
    optimizer, other = module.configure_optimizers(), PlainMuon(plain, 0.0025, 1e-8)
    losses = []
    for batch, _ in zip(data.train_loader(512, 1, ALONE), range(steps), strict=False):
        loss = module.training_step(batch, 0)
        loss.backward()
        optimizer.step()
        plain.zero_grad()
        expected = plain(batch["inputs"], batch["targets"])
        expected.backward()
        other.step()
        losses.append((float(loss.detach()), float(expected.detach())))
    assert len(losses) == steps
    own, expected = zip(*losses, strict=True)
    assert own == pytest.approx(expected, rel=0, abs=1e-5)
    assert losses[-1][0] < losses[0][0] - 0.1


def test_gradients_are_the_same_in_one_part_or_in_several() -> None:
    module = model()
    spread(module)
    batch = batch_of(language(), 512)
    seen = []
    for micro in (512, 128, 16):
        module.micro_batch_size = micro
        loss = module.training_step(batch, 0)
        loss.backward()
        seen.append([loss.detach(), *(parameter.grad for parameter in module.parameters())])
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(seen[2], seen[0], rtol=1e-4, atol=1e-6)


def batch_of(data: LanguageData, tokens: int) -> Batch:
    return next(iter(data.train_loader(tokens, 1, ALONE)))


def spread(module: LanguageModel) -> None:
    """Give all weights other values: many of the first ones are zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def test_nothing_is_seen_of_what_comes_later() -> None:
    module = model()
    spread(module)
    inputs = batch_of(language(), 16)["inputs"]
    changed = inputs.clone()
    changed[0, 9:] = (changed[0, 9:] + 1) % 40
    own, other = module.net.logits(inputs), module.net.logits(changed)
    torch.testing.assert_close(own[0, :9], other[0, :9])
    assert (own[0, 9] - other[0, 9]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("layers", "width", "heads", "millions"),
    [(12, 768, 6, 162), (24, 1024, 8, 405), (36, 1280, 10, 838), (48, 1600, 25, 1637)],
)
def test_the_sizes_are_gpt_2s_with_a_head_of_its_own(layers: int, width: int, heads: int, millions: int) -> None:
    with torch.device("meta"):
        net = GPT(Sizes(layers, width, heads), 16)
    assert sum(parameter.numel() for parameter in net.parameters()) == pytest.approx(millions * 1e6, rel=0.005)


def test_flops_are_those_of_the_formula_and_of_every_product_by_hand() -> None:
    sizes, length = Sizes(), 1024
    flops = flops_per_token(sizes, length)
    assert flops == pytest.approx(6 * (12 * 12 * 768**2 + 50304 * 768) + 12 * 12 * 768 * 1024)
    assert flops == pytest.approx(855e6, rel=0.001)  # as published
    products = []  # (rows, inner, columns) of every matrix product of a sequence's forward pass
    for _ in range(12):
        products += [(length, 768, 768)] * 4  # query, key, value, out
        products += [(length, 128, length), (length, length, 128)] * 6  # of each head
        products += [(length, 768, 3072), (length, 3072, 768)]
    products.append((length, 768, 50304))
    forward = sum(2 * rows * inner * columns for rows, inner, columns in products)
    assert 3 * forward / length == pytest.approx(flops, rel=1e-12)


def test_a_token_is_a_sample() -> None:
    data = language()
    assert model(data).flops_per_sample() == flops_per_token(Sizes(2, 32, 2, 48), 16)
    assert batch_of(data, 512)["num_samples"] == 512


def test_an_evaluation_is_of_real_targets_alone_and_in_nats() -> None:
    data = language()
    module = model(data)
    spread(module)
    plain, total, number = plain_of(module.net), 0.0, 0
    for batch in data.eval_loader(256, ALONE):  # type: ignore[union-attr]
        with torch.no_grad():
            module.validation_step(batch, 0)
            real = int((batch["targets"] != IGNORED).sum())
            total += float(plain(batch["inputs"], batch["targets"])) * real
            number += real
    assert number == 640
    assert module.metrics() == {"loss": pytest.approx(total / number, rel=1e-5)}


def test_bits_a_byte_where_the_bytes_are_known() -> None:
    module = model()
    module.bytes_per_token = 4.0
    with torch.no_grad():
        module.validation_step(batch_of(language(), 64), 0)
    values = module.metrics()
    assert values["loss"] == pytest.approx(math.log(48))  # The head begins with zeros.
    assert values["bits_per_byte"] == pytest.approx(math.log2(48) / 4)


def test_a_target_on_bits_a_byte_is_refused_where_no_bytes_are_known() -> None:
    module = model()
    module.check_targets({"loss": 1.0})
    with pytest.raises(ConfigError) as refused:
        module.check_targets({"loss": 1.0, "bits_per_byte": 1.0})
    key, _, words = str(refused.value).partition(": ")
    assert (key, words.rpartition("Next: ")[2]) == ("model.targets.grammar.bits_per_byte", "give a target on loss")
    module.data_name = "tokens"
    with pytest.raises(ConfigError, match=r"on loss, or the dataset\.tokenizer of the files$"):
        module.check_targets(["bits_per_byte"])
    module.bytes_per_token = 4.0
    module.check_targets(["bits_per_byte"])


def test_rates_stay_and_then_fall_to_zero() -> None:
    module = model(steps=100, cooldown=0.7)
    assert [module.share_of_rate(step) for step in (0, 29, 30, 65, 99)] == pytest.approx([1, 1, 1, 0.5, 1 / 70])
    assert module.ends_at_zero
    constant = model(cooldown=0.0)
    assert (constant.share_of_rate(99), constant.ends_at_zero) == (1.0, False)
    rates = [group["full_lr"] for group in module.configure_optimizers().param_groups]
    assert rates == pytest.approx([0.025, 0.7, 0.004, 0.015])  # as published


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"vocabulary": 39},
            "model.hparams.vocabulary=39: is smaller than the 40 tokens of dataset=grammar. Next: give 40 or more,"
            " or null",
        ),
        ({"vocabulary": 0}, "model.hparams.vocabulary=0: must be a whole number of tokens"),
        ({"width": 20}, "model.hparams.width=20: must be a multiple of 4"),
        ({"steps": 0}, "model.hparams.steps=0: must be a whole number, 1 or more"),
        ({"cooldown": 1.5}, "model.hparams.cooldown=1.5: must be from 0 to 1"),
        ({"activation_checkpointing": 1}, "model.hparams.activation_checkpointing=1: must be true or false"),
        ({"clip_norm": 0}, "model.hparams.clip_norm=0: must be a norm above 0, or null"),
        ({"architecture": "bert"}, "model.hparams.architecture=bert: must be gpt or llama"),
        ({"kv_heads": 1}, "model.hparams.kv_heads=1: must be null, or with architecture=llama a divisor of heads=2"),
        (
            {"kv_heads": 3, "architecture": "llama"},
            "model.hparams.kv_heads=3: must be null, or with architecture=llama a divisor of heads=2",
        ),
        ({"hidden": 0}, "model.hparams.hidden=0: must be a number above 0"),
        ({"cap": 100.0}, "model.hparams.cap=100.0: must be above 0 and up to 60"),
        ({"head_rate": 0.0}, "model.hparams.head_rate=0.0: must be a number above 0"),
        ({"vector_rate": "x"}, "model.hparams.vector_rate=x: must be a number above 0"),
        ({"attention_scale": "x"}, "model.hparams.attention_scale=x: must be a number above 0"),
        ({"cooldown": "x"}, "model.hparams.cooldown=x: must be from 0 to 1"),
        ({"momentum": None}, "model.hparams.momentum=None: must be from 0 to below 1"),
        ({"cap": "15"}, "model.hparams.cap=15: must be above 0"),
        ({"width": "32"}, "model.hparams.width=32: must be a multiple of 4"),
        ({"heads": 1.5}, "model.hparams.heads=1.5: must be a whole number, 1 or more"),
        ({"epsilon": -1}, "model.hparams.epsilon=-1: must be a number above 0"),
        ({"epsilon": "x"}, "model.hparams.epsilon=x: must be a number above 0"),
        ({"epsilon": math.nan}, "model.hparams.epsilon=nan: must be a number above 0"),
        ({"betas": 0.8}, "model.hparams.betas=0.8: must be two numbers from 0 to below 1, such as [0.8, 0.95]"),
        ({"betas": [0.8]}, "model.hparams.betas=[0.8]: must be two numbers"),
        ({"betas": [1.5, 2]}, "model.hparams.betas=[1.5, 2]: must be two numbers"),
        ({"betas": ["a", "b"]}, "model.hparams.betas=['a', 'b']: must be two numbers"),
        ({"betas": "ab"}, "model.hparams.betas=ab: must be two numbers"),
        ({"adamw_weight_decay": -3}, "model.hparams.adamw_weight_decay=-3: must be a number, 0 or more"),
        ({"adamw_weight_decay": None}, "model.hparams.adamw_weight_decay=None: must be a number, 0 or more"),
        ({"weight_decay": -5.0}, "model.optimizer.weight_decay=-5.0: must be a number, 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        model(**options)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("micro", "batch", "words"),
    [
        (100, 1600, "model.hparams.micro_batch_size=100: is in tokens, and not a multiple of"
                    " dataset.sequence_length=16. Next: give a multiple, such as 80"),
        (8, 1600, "model.hparams.micro_batch_size=8: is in tokens, and not a multiple of"
                  " dataset.sequence_length=16. Next: give a multiple, such as 16"),
        (64, 160, "model.hparams.micro_batch_size=64: does not divide a device's batch of 160 tokens. Next: give a"
                  " divisor of it, such as 32"),
        (64, 100, "batch_size=100: is in tokens, and not a multiple of dataset.sequence_length=16"),
    ],
)  # fmt: skip
def test_a_batch_that_no_micro_batches_make_up_is_refused(micro: int, batch: int, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        model(micro_batch_size=micro).check_batch(batch)
    assert str(refused.value).startswith(words)
    if "such as" in words:
        model(micro_batch_size=int(words.split()[-1])).check_batch(batch)
    model(micro_batch_size=64).check_batch(32)  # One smaller than a micro-batch is one.
    model(micro_batch_size=64).check_batch(128)


def test_without_a_vocabulary_it_is_the_datas_rounded_up() -> None:
    assert model(vocabulary=None).net.sizes.vocabulary == 64


def test_the_predictor_says_what_the_loss_is_of() -> None:
    module = model()
    spread(module)
    batch = batch_of(language(), 64)
    predictor, inputs = module.predictor(batch)
    assert len(inputs) == 8
    logits = predictor(inputs)[:4]
    loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    torch.testing.assert_close(module.training_step(batch, 0), loss)
    program = torch.export.export(predictor, (inputs,), dynamic_shapes=({0: torch.export.Dim("samples")},))
    torch.testing.assert_close(program.module()(inputs[:2]), logits[:2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own looking
def test_one_compiled_layer_serves_all_of_them() -> None:
    module = model()
    spread(module)
    batch = batch_of(language(), 64)
    expected = module.training_step(batch, 0)
    expected.backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    counted = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    plain = module.net._parts
    compiled = torch.compile(plain.layer, backend=counted, fullgraph=True, dynamic=False)
    module.net._parts = plain._replace(layer=compiled)
    loss = module.training_step(batch, 0)
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close([parameter.grad for parameter in module.parameters()], gradients)
    assert counted.frame_count == 1


def test_it_learns_what_one_token_says_of_the_next() -> None:
    data = language(vocabulary=12, branches=2)
    module = model(data, steps=40, vocabulary=12, micro_batch_size=512)
    optimizer = module.configure_optimizers()
    for batch, _ in zip(data.train_loader(512, 1, ALONE), range(40), strict=False):
        module.training_step(batch, 0).backward()
        optimizer.step()
    with torch.no_grad():
        for batch in data.eval_loader(256, ALONE):  # type: ignore[union-attr]
            module.validation_step(batch, 0)
    assert data.entropy is not None
    assert data.entropy < module.metrics()["loss"] < data.entropy + 0.2
