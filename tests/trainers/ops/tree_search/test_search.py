"""The flat trees against the plain search, visit for visit; noise, memory, and what is refused."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from conf.schema import ConfigError
from tests.trainers import triton_on_cpu
from tests.trainers.ops.tree_search.descent_triton_on_cpu import searched
from tests.trainers.ops.tree_search.plain_search import PlainSearch
from tests.trainers.ops.tree_search.tables import CPU, GAMES, RULES, opened, table
from trainers.ops.go import Rules
from trainers.ops.tree_search import Dice, Search, Settings, Trees, descent, node_bytes


@pytest.mark.parametrize(("readouts", "leaves"), [(24, 1), (24, 4), (40, 8)])
def test_the_trees_grow_as_the_plain_search_has_it_visit_for_visit(readouts: int, leaves: int) -> None:
    evaluate, settings = table(RULES), Settings(readouts, leaves)
    search = Search(RULES, evaluate, settings, GAMES, CPU)
    boards, every = opened(RULES, GAMES), torch.ones(GAMES, dtype=torch.bool)
    search.restart(every, boards)
    plain = [PlainSearch(RULES, evaluate, settings, boards.take(torch.tensor([game]))) for game in range(GAMES)]
    dice = Dice(torch.arange(GAMES), 1)
    for _ in range(6):
        active = ~search.trees.roots().over
        search.run(active, dice)
        for game in active.nonzero()[:, 0].tolist():
            assert search.counts()[game].tolist() == plain[game].run().tolist()
            assert search.trees.totals[game, 0].tolist() == plain[game].root.totals.tolist()
        moves = search.counts().argmax(dim=1)
        search.advance(moves, active)
        for game in active.nonzero()[:, 0].tolist():
            plain[game].advance(int(moves[game]))
    assert search.trees.counts.max() > 1


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_grow_the_same_trees() -> None:
    kernels = triton_on_cpu.results("tests.trainers.ops.tree_search.descent_triton_on_cpu")
    for name, tensor in searched(descent).items():
        assert torch.equal(kernels[name], tensor), name


def counted(device: torch.device, left: list[int] | None = None) -> list[list[list[int]]]:
    """Visits of the roots at three moves in succession; after the first, only of the games that are left."""
    search, numbers = Search(RULES, table(RULES, device=device), Settings(24, 4), GAMES, device), torch.arange(GAMES)
    boards = opened(RULES, GAMES).map(lambda tensor: tensor.to(device))
    search.restart(torch.ones(GAMES, dtype=torch.bool, device=device), boards)
    visits = []
    for move in range(3):
        active = ~search.trees.roots().over
        search.run(active, Dice(numbers.to(device), 1))
        visits.append(search.counts().tolist())
        search.advance(search.counts().argmax(dim=1), active)
        if left and not move:
            numbers, visits = torch.tensor(left), [[visits[0][game] for game in left]]
            search.trees.move_up(numbers.to(device))
            search = search.first(len(left))
    return visits


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_captured_search_on_a_gpu_visits_what_the_cpus_does() -> None:
    assert counted(torch.device("cuda")) == counted(CPU)
    assert counted(torch.device("cuda"), left=[1, 4]) == counted(CPU, left=[1, 4])


def test_a_move_keeps_the_tree_below_it_and_games_that_are_left_out_keep_theirs() -> None:
    search = Search(RULES, table(RULES), Settings(16, 4), 2, CPU)
    search.run(torch.tensor([True, True]), Dice(torch.arange(2), 1))
    before = search.counts().clone()
    moves = before.argmax(dim=1)
    search.advance(moves, torch.tensor([True, False]))
    assert search.counts()[0].sum() == before[0, moves[0]] - 1  # The first visit evaluated the node itself.
    assert search.counts()[1].tolist() == before[1].tolist()
    assert search.trees.roots().moves.tolist() == [1, 0]


def test_a_tree_keeps_no_more_nodes_than_there_is_room_for() -> None:
    settings = Settings(4, 2)
    search = Search(RULES, table(RULES), settings, 3, CPU)
    every = torch.ones(3, dtype=torch.bool)
    for _ in range(5):
        search.run(every & ~search.trees.roots().over, Dice(torch.arange(3), 1))
        search.advance(search.counts().argmax(dim=1), every & ~search.trees.roots().over)
        assert search.trees.counts.max() <= settings.kept


def test_games_that_are_left_go_on_in_a_smaller_search_as_among_the_others() -> None:
    assert counted(CPU, left=[1, 4]) == [[visits[1], visits[4]] for visits in counted(CPU)]


def test_noise_is_a_games_own_wherever_it_is_played() -> None:
    def noisy(games: list[int]) -> torch.Tensor:
        search = Search(RULES, table(RULES), Settings(16, 4, noise=True), len(games), CPU)
        search.run(torch.ones(len(games), dtype=torch.bool), Dice(torch.tensor(games), 7))
        return search.trees.priors[:, 0]

    both = noisy([4, 9])
    assert torch.equal(both[1], noisy([9])[0])
    assert not torch.equal(both[0], both[1])
    torch.testing.assert_close(both.clamp(min=0).sum(dim=1), torch.ones(2))


def test_the_noise_has_the_mean_and_the_spread_of_a_dirichlet_distribution() -> None:
    legal = torch.ones(20_000, 5, dtype=torch.bool)
    legal[:, 4] = False
    drawn = Dice(torch.arange(20_000), 1).dirichlet(torch.zeros(20_000), legal, 0.4)
    assert (drawn[:, 4] == 0).all()
    torch.testing.assert_close(drawn[:, :4].mean(dim=0), torch.full((4,), 0.25), atol=0.01, rtol=0)
    variance = 0.25 * 0.75 / (4 * 0.4 + 1)
    torch.testing.assert_close(drawn[:, :4].var(dim=0), torch.full((4,), variance), atol=0.005, rtol=0)


@pytest.mark.parametrize(
    ("readouts", "leaves", "words"),
    [(4, 8, "readouts=4: is not a multiple"), (12, 8, "such as 8"), (0, 1, "readouts=0"), (8, 0, "leaves=0")],
)
def test_readouts_that_make_no_whole_steps_are_refused(readouts: int, leaves: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settings(readouts, leaves)


def test_the_memory_of_a_tree_is_known_before_it_is_made() -> None:
    rules = Rules()
    trees = Trees.empty(rules, 3, 7, CPU)
    held = sum(tensor.numel() * tensor.element_size() for tensor in (*trees.boards, *trees[1:-1]))
    assert held == 3 * 7 * node_bytes(rules)
