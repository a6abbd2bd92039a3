"""NeuMF: losses and gradients against plain layers, hit rates against a slow reference, size, options, and learning."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import ConfigError
from tests.trainers import synchronization
from tests.trainers.processes import ALONE, CPU
from trainers.data.loading.types import Shard
from trainers.data.ratings import RatingsData, SyntheticRatings, ratings
from trainers.data.ratings.draws import rated_items
from trainers.data.ratings.loader import CANDIDATES, NUM_CANDIDATES, candidates
from trainers.models.ncf.module import TOP, Ncf, evaluate, hits_and_gains, ranks, training_loss
from trainers.models.ncf.network import NeuMF
from trainers.ops.chance.counters import key_of, random_bits

SIZES = {"factors": 8, "layers": [16, 12, 6]}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
pytestmark = pytest.mark.usefixtures("own_cache")


def ncf(data: RatingsData | SyntheticRatings, learning_rate: float = 0.01, **options: Any) -> Ncf:
    torch.manual_seed(1)
    return Ncf(data, learning_rate, weight_decay=0.0, **{"epochs": 3, **SIZES, **options})


class Plain(nn.Module):
    """The model of arXiv:1708.05031 for pairs: each sample by itself, as MLPerf's reference computes it."""

    def __init__(self, num_users: int, num_items: int, factors: int, layers: list[int]) -> None:
        super().__init__()
        self.mf_user, self.mf_item = nn.Embedding(num_users, factors), nn.Embedding(num_items, factors)
        self.mlp_user, self.mlp_item = (nn.Embedding(num, layers[0] // 2) for num in (num_users, num_items))
        steps = [step for sizes in pairwise(layers) for step in (nn.Linear(*sizes), nn.ReLU())]
        self.mlp = nn.Sequential(*steps)
        self.final = nn.Linear(layers[-1] + factors, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        hidden = self.mlp(torch.cat((self.mlp_user(user), self.mlp_item(item)), dim=1))
        product = self.mf_user(user) * self.mf_item(item)
        return self.final(torch.cat((product, hidden), dim=1))[:, 0]


def plain_names(net: NeuMF) -> dict[str, torch.Tensor]:
    """Our parameters by the names that they have in Plain."""
    layers = {"first": 0} | {f"others.{place}": place + 1 for place in range(len(net.others))}
    renamed = {}
    for name, tensor in net.named_parameters():
        layer, _, kind = name.rpartition(".")
        renamed[f"mlp.{2 * layers[layer]}.{kind}" if layer in layers else name] = tensor
    return renamed


def spread(net: nn.Module) -> None:
    """Make the weights larger than the initial ones, so rounding does not lose parts of a gradient."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, 0.5)


def by_popularity(net: NeuMF, data: RatingsData) -> None:
    """Have it prefer what many rated."""
    counts = torch.from_numpy(np.bincount(data.interactions.items, minlength=data.num_items))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.mf_user.weight[:, 0] = net.final.weight[0, 0] = 0.1
        net.mf_item.weight[:, 0] = counts


def test_loss_and_gradients_are_those_of_plain_layers() -> None:
    torch.manual_seed(3)
    net, plain = NeuMF(5, 9, **SIZES).double(), Plain(5, 9, **SIZES).double()
    spread(net)
    plain.load_state_dict({name: tensor.detach() for name, tensor in plain_names(net).items()})
    users, items = torch.tensor([0, 4, 4, 2]), torch.randint(0, 9, (4, 5))
    items[1] = items[2]  # the same rows twice, whose gradients add up
    weights = torch.tensor([0.5, 0.25, 0.25, 0.0]).double()  # the last one is filler
    loss = training_loss(net, users, items, weights)
    labels = torch.tensor([1.0, 0, 0, 0, 0]).double().repeat(4)
    losses = nn.functional.binary_cross_entropy(
        plain(users.repeat_interleave(5), items.flatten()).sigmoid(), labels, reduction="none"
    )
    expected = (losses * weights.repeat_interleave(5) / 5).sum()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    gradients = plain_names(net)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-5, atol=1e-7, msg=name)


def test_a_step_is_that_of_plain_adam() -> None:
    data = ratings(1000)
    module = ncf(data, beta1=0.25, beta2=0.5, eps=1e-8)
    plain = Plain(data.num_users, data.num_items, **SIZES)
    plain.load_state_dict({name: tensor.detach().clone() for name, tensor in plain_names(module.net).items()})
    optimizer = module.configure_optimizers()
    other = torch.optim.Adam(plain.parameters(), lr=0.01, betas=(0.25, 0.5), eps=1e-8)
    batches = list(data.train_loader(500, 1, ALONE))[:3]
    for batch in batches:
        users, items = batch["users"], batch["items"]
        optimizer.zero_grad()
        module.training_step(batch, 0).backward()
        optimizer.step()
        other.zero_grad()
        logits = plain(users.repeat_interleave(5), items.flatten())
        nn.BCEWithLogitsLoss()(logits, torch.tensor([1.0, 0, 0, 0, 0]).repeat(len(users))).backward()
        other.step()
    for name, parameter in plain.named_parameters():
        # Adam divides by the gradients' size, and so makes much of the rounding of those that are nearly zero.
        close = torch.isclose(plain_names(module.net)[name], parameter, rtol=1e-3, atol=1e-5)
        assert close.float().mean() > 0.99, name


def test_the_counted_flops_are_those_of_the_layers() -> None:
    """Forward, and twice backward. A positive's user goes through its half of the first layer once for five items."""
    positives = 4
    with torch.device("meta"):
        net = NeuMF(5, 99, 64, [256, 256, 128, 64])
        users, items = torch.empty(positives, dtype=torch.int64), torch.empty(positives, 5, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            training_loss(net, users, items, torch.empty(positives)).backward()
    multiplications = 128 * 256 + 5 * (128 * 256 + 256 * 128 + 128 * 64)
    assert counter.get_total_flops() == 3 * 2 * positives * multiplications


def test_number_of_parameters_at_movielens_20m_s_size() -> None:
    with torch.device("meta"):
        module = Ncf(SyntheticRatings(), 1e-3, 0.0, epochs=1)
        plain = Plain(138_493, 26_744, 64, [256, 256, 128, 64])
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count == sum(parameter.numel() for parameter in plain.parameters()) == 31_832_577
    tables = (layer for layer in module.modules() if isinstance(layer, nn.Embedding))
    assert sum(table.weight.numel() for table in tables) == 31_725_504


def test_first_weights_are_the_reference_s() -> None:
    net = NeuMF(2000, 2000, 64, [256, 256, 128, 64])
    for table in (net.mf_user, net.mf_item, net.mlp_user, net.mlp_item):
        assert float(table.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
    for layer in (net.first, *net.others):
        limit = math.sqrt(6 / sum(layer.weight.shape))
        assert 0.98 * limit < float(layer.weight.detach().abs().max()) <= limit
    limit = math.sqrt(3 / 128)
    assert 0.9 * limit < float(net.final.weight.detach().abs().max()) <= limit


def published_hit(scores: list[float], items: list[int], held_out: int) -> tuple[int, float]:
    """MLPerf v0.5's rule, step by step: negatives and then the held-out item, each item once, the ten best of them.

    An item keeps the place at which it was put in first; of equal scores the earlier place comes first.
    """
    score_of: dict[int, float] = {}
    for item, score in zip([*items, held_out], scores, strict=True):
        score_of[item] = score
    best = sorted(score_of, key=lambda item: -score_of[item])[:TOP]
    return (1, math.log(2) / math.log(best.index(held_out) + 2)) if held_out in best else (0, 0.0)


@given(st.integers(0, 2**32 - 1), st.integers(12, 60), st.sampled_from([2, 5, 1000]))
def test_the_hit_rate_is_the_published_one_with_ties_and_duplicates(seed: int, num_items: int, levels: int) -> None:
    """Few items make duplicates, also of the held-out one; few levels of scores make ties."""
    rng = np.random.RandomState(seed)
    rated = np.sort(rng.permutation(num_items)[: rng.randint(1, num_items - 2)])
    unrated = np.setdiff1d(np.arange(num_items), rated)
    held_out = int(rng.choice(unrated))
    table = rated_items(num_items, torch.tensor([0, len(rated)]), torch.from_numpy(rated.astype(np.int32)))
    counters = torch.arange(NUM_CANDIDATES - 1)
    drawn = table.unrated(torch.zeros_like(counters), random_bits(counters, key_of(CANDIDATES))).tolist()
    score_of = rng.randint(0, levels, num_items) / levels
    expected = published_hit([float(score_of[item]) for item in (*drawn, held_out)], drawn, held_out)
    items, positions = candidates(table, torch.tensor([0]), torch.tensor([held_out]))
    place = ranks(torch.tensor(score_of)[items.clamp(min=0)], items >= 0, positions)
    assert hits_and_gains(place, torch.ones(1)).tolist() == pytest.approx([1, *expected])
    assert {item for item in items[0].tolist() if item >= 0} == {*drawn, held_out} <= set(unrated.tolist())


def test_the_held_out_item_loses_ties_and_duplicates_count_once() -> None:
    scores = torch.tensor([[0.9] * 9 + [0.5, 0.5], [0.9] * 9 + [0.4, 0.5], [0.5] * 10 + [0.5]])
    valid = torch.ones(3, 11, dtype=torch.bool)
    positions = torch.full((3,), 10)
    assert ranks(scores, valid, positions).tolist() == [10, 9, 10]
    valid[0, 3] = valid[2, :2] = False  # drawn before
    assert ranks(scores, valid, positions).tolist() == [9, 9, 8]
    assert ranks(scores, valid, torch.tensor([9, 9, 0])).tolist() == [8, 10, 0]  # it was drawn, and comes earlier


def test_what_is_not_a_number_is_no_hit() -> None:
    scores = torch.tensor([[0.1, 0.2, math.nan], [0.1, math.nan, 0.3]]).repeat_interleave(5, dim=1)
    valid, positions = torch.ones(2, 15, dtype=torch.bool), torch.full((2,), 14)
    assert ranks(scores, valid, positions).tolist() == [15, 9]  # In the second row four tie and five are NaN.


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_metric_of_several_processes_is_that_of_one(world_size: int) -> None:
    data = ratings(10_000)
    module = ncf(data)
    by_popularity(module.net, data)

    def metrics(shards: list[Shard]) -> dict[str, float]:
        with torch.no_grad():
            for shard in shards:
                for batch in data.eval_loader(4 * NUM_CANDIDATES, shard):
                    module.validation_step(batch, 0)
        return module.metrics()

    alone = metrics([ALONE])
    assert 0 < alone["hit_rate_10"] < 1
    shared = metrics([Shard(rank, world_size, CPU) for rank in range(world_size)])
    assert shared["hit_rate_10"] == alone["hit_rate_10"]
    assert shared["ndcg_10"] == pytest.approx(alone["ndcg_10"], rel=1e-6)


def test_gradients_of_two_processes_are_those_of_one() -> None:
    data = ratings(1000)
    module = ncf(data)

    def gradient(shard: Shard) -> torch.Tensor:
        module.zero_grad()
        *_, last = data.train_loader(300 // shard.world_size // 5 * 5, 1, shard)
        module.training_step(last, 0).backward()
        return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])

    mean = (gradient(Shard(0, 2, CPU)) + gradient(Shard(1, 2, CPU))) / 2  # the mean that DDP takes
    torch.testing.assert_close(mean, gradient(ALONE), rtol=1e-4, atol=1e-7)


def test_a_few_epochs_raise_the_hit_rate(one_thread: None) -> None:
    data = ratings(20_000)
    module = ncf(data, learning_rate=0.02, factors=8, layers=[16, 8])
    optimizer = module.configure_optimizers()
    loader, rates = data.train_loader(2000, 1, ALONE), []
    for epoch in range(6):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            module.training_step(batch, 0).backward()
            optimizer.step()
        with torch.no_grad():
            for batch in data.eval_loader(20 * NUM_CANDIDATES, ALONE):
                module.validation_step(batch, 0)
        rates.append(module.metrics()["hit_rate_10"])
    assert max(rates) > 0.15  # chance is 0.01, and popularity alone 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_is_exported_as_what_gives_the_probability_of_pairs() -> None:
    data = ratings(1000)
    module = ncf(data)
    spread(module.net)
    network, pairs = module.predictor(data.example_batches(2, CPU)[0])
    assert pairs.shape == (5, 2)  # a positive's group is the least that there is
    program = torch.export.export(network.eval(), (pairs,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    other = torch.tensor([[0, 3], [6, 3], [0, 999]])
    expected = [module.net(user[None], item[None, None])[0, 0].sigmoid() for user, item in other]
    torch.testing.assert_close(program.module()(other), torch.stack(expected))


def test_bf16_rounds_no_more_than_the_perceptron() -> None:
    """The product and the sum of a logit stay in fp32, so that close items do not tie."""
    data = ratings(1000)
    module = ncf(data)
    spread(module.net)
    users, items = torch.zeros(1, dtype=torch.int64), torch.arange(1000)[None]
    expected = module.net(users, items)
    with torch.autocast("cpu", torch.bfloat16):
        logits = module.net(users, items)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0.1, atol=0.3)
    assert len(logits.unique()) > 990


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, r"epochs=0: must be a whole number"),
        ({"factors": 0}, r"factors=0: must be"),
        ({"layers": [15, 8]}, r"layers=\[15, 8\]: must be .*the first one even"),
        ({"layers": [16]}, r"layers=\[16\]"),
        ({"layers": 16}, r"layers=16"),
        ({"beta1": 1.0}, r"beta1=1\.0: must be from 0 to below 1"),
        ({"beta2": -0.1}, r"beta2=-0\.1"),
        ({"beta1": "x"}, r"beta1=x: must be from 0 to below 1"),
        ({"eps": 0}, r"eps=0: must be a number above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.hparams\.{words}"):
        ncf(SyntheticRatings(), **options)


def test_a_beta_may_be_a_whole_number() -> None:
    assert ncf(SyntheticRatings(), beta1=0).configure_optimizers().defaults["betas"] == (0.0, 0.999)


@pytest.mark.slow
def test_loss_and_evaluation_are_each_one_graph() -> None:
    """Which is what a CUDA graph asks for; traced, but not compiled, which takes long."""
    data = ratings(1000)
    net = ncf(data).net
    (batch,) = data.example_batches(100, CPU)
    inputs = [batch[name] for name in ("users", "items", "weights")]
    loss = torch.compile(training_loss, backend="aot_eager", fullgraph=True, dynamic=False)(net, *inputs)
    torch.testing.assert_close(loss, training_loss(net, *inputs))
    inputs = [batch[name] for name in ("eval_users", "candidates", "positions", "eval_weights")]
    counted = torch.compile(evaluate, backend="aot_eager", fullgraph=True, dynamic=False)(net, *inputs)
    torch.testing.assert_close(counted, evaluate(net, *inputs))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_compiled_step_on_a_gpu_never_waits_and_computes_the_same(precision: str) -> None:
    device = torch.device("cuda", 0)
    data = ratings(20_000)
    module = ncf(data)
    shard = Shard(0, 1, device)
    with torch.no_grad():
        batch = next(iter(data.train_loader(5000, 1, ALONE)))
        expected = float(module.training_step(batch, 0))
        evaluated = next(iter(data.eval_loader(5000, ALONE)))
        names = ("eval_users", "candidates", "positions", "eval_weights")
        hits = evaluate(module.net, *(evaluated[name] for name in names)).tolist()
    module.to(device).compile_hot_path()
    optimizer = module.configure_optimizers()

    def step(batch: dict[str, Any]) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = module.training_step(batch, 0)
        loss.backward()
        return loss.detach().clone()

    loader = iter(data.train_loader(5000, 1, shard))
    first = step(next(loader))
    for _ in range(2):
        step(next(loader))
    with synchronization.refused():
        step(next(loader))
        optimizer.step()
    assert float(first) == pytest.approx(expected, rel=1e-5 if precision == "fp32" else 1e-2)
    assert hits[0] == 5
