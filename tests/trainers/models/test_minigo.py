"""MiniGo's parts: network, positions, self-play, matches, the gate's Elo, memory, and options that are refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from tests.trainers.models.minigo_parts import CPU, RULES, SMALL, minigo, net, options, played, played_boards
from trainers.data.loading.types import Recorded
from trainers.data.selfplay import SelfPlayData
from trainers.models.minigo import elo
from trainers.models.minigo.arena import Arena, Place
from trainers.models.minigo.frozen import digest_of, load_frozen
from trainers.models.minigo.matches import OnePly, RandomPlayer, wins_of
from trainers.models.minigo.network import Sizes, training_loss
from trainers.models.minigo.positions import Positions, Window, planes_of, words_of
from trainers.models.minigo.pro_moves import ProMoves, pro_games
from trainers.models.minigo.self_play import Customs
from trainers.ops.go import Rules


def test_positions_are_kept_as_words_that_give_back_the_planes() -> None:
    boards = played_boards(RULES, 6, 5)
    planes = planes_of(words_of(boards), boards.to_play > 0, 3)
    assert torch.equal(planes, RULES.planes(boards))


def test_the_window_keeps_the_newest_positions_and_goes_on_from_a_checkpoint() -> None:
    def numbered(first: int, number: int) -> Positions:
        room = Positions.room(number, RULES, CPU)
        return room._replace(outcomes=torch.arange(first, first + number).to(torch.int8))

    window = Window(RULES, 10)
    window.add(numbered(0, 7))
    window.add(numbered(7, 6))
    kept = window.content()["outcomes"].tolist()
    assert kept == list(range(3, 13))
    again = Window(RULES, 10)
    again.restore(window.content(), CPU)
    again.add(numbered(13, 2))
    assert again.content()["outcomes"].tolist() == [*kept[2:], 13, 14]
    assert set(window.sample(200, 1)["outcomes"].tolist()) == {float(number) for number in kept}
    again.restore(window.content(), CPU)
    assert torch.equal(window.sample(9, 5)["outcomes"], again.sample(9, 5)["outcomes"])


def test_a_sampled_position_and_its_policy_are_turned_alike() -> None:
    boards = RULES.play(RULES.start(1), torch.tensor([1]))
    policy = torch.zeros(1, 10).half()
    policy[0, 1] = 1  # where the stone is
    window = Window(RULES, 4)
    window.add(Positions(words_of(boards), boards.to_play > 0, policy, torch.ones(1, dtype=torch.int8)))
    batch = window.sample(64, 2)
    stones = batch["planes"][:, 1].flatten(1)  # of the player who moved
    assert torch.equal(stones, batch["policies"][:, :-1])
    assert len(stones.unique(dim=0)) == 4


def test_every_game_is_played_to_its_end_and_leaves_its_positions_with_the_winners_side() -> None:
    of_all = played(customs=Customs(resign_at=-1, temperature_moves=4))
    assert of_all.games == 10
    assert of_all.moves == len(of_all.positions.words)
    assert of_all.evaluations == 8 * of_all.moves
    assert of_all.resigned == 0
    policies = of_all.positions.policies.float().sum(dim=1)
    torch.testing.assert_close(policies, torch.ones_like(policies), atol=2e-3, rtol=0)
    starts = (of_all.positions.words == 0).all(dim=1) & of_all.positions.black
    first = starts.nonzero()[:, 0]
    assert len(first) >= 10
    assert int((of_all.positions.outcomes[first] > 0).sum()) >= of_all.black_wins
    assert set(of_all.positions.outcomes.tolist()) <= {1, -1}


def test_a_game_is_the_same_in_whatever_slot_and_on_however_many_processes_it_is_played() -> None:
    of_all = played()
    slots = played(games_at_once=7)
    halves = [Arena(options(games=10), Place(rank, 2, CPU), net(), net()).self_play(0) for rank in range(2)]
    rows = [sorted(map(tuple, part.positions.words.tolist())) for part in (of_all, slots)]
    both = sorted(row for half in halves for row in map(tuple, half.positions.words.tolist()))
    assert rows[0] == rows[1] == both
    assert sum(half.evaluations for half in halves) == of_all.evaluations


def test_who_expects_to_lose_resigns_but_in_the_games_where_nobody_may() -> None:
    assert played(customs=Customs(resign_at=0.999, never_resign=0.0)).moves == 0
    some = played(games=40, customs=Customs(resign_at=0.999, never_resign=0.5))
    assert 8 < some.resigned < 32


def test_a_player_who_looks_a_move_ahead_beats_a_random_one() -> None:
    rules = Rules(5, 0.5)
    games = torch.arange(60)
    wins = wins_of(rules, OnePly(rules), RandomPlayer(rules), games, 60, (1,))
    assert wins.float().mean() > 0.8
    assert torch.equal(wins, wins_of(rules, OnePly(rules), RandomPlayer(rules), games, 60, (1,)))
    halves = [wins_of(rules, OnePly(rules), RandomPlayer(rules), games[part::2], 60, (1,)) for part in range(2)]
    assert int(torch.cat(halves).sum()) == int(wins.sum())


def test_an_evaluation_counts_each_case_once_over_processes() -> None:
    sums = []
    for world_size in (1, 2):
        arenas = [Arena(options(), Place(rank, world_size, CPU), net(), net()) for rank in range(world_size)]
        cases = torch.arange(10)
        parts = [arena.evaluate(cases[rank::world_size], 0) for rank, arena in enumerate(arenas)]
        sums.append(torch.stack(parts).sum(dim=0).tolist())
    assert sums[0] == sums[1]
    assert sums[0][1::2] == [5, 5]


def test_professionals_moves_count_where_the_search_has_them_as_its_first() -> None:
    moves = [[4, 0, 8], [4, 9]]
    asked = ProMoves(RULES, moves, readouts=16)
    assert asked.num_cases == 10

    def centre(planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.zeros(len(planes), 10)
        logits[:, 4], logits[:, 9] = 9.0, 6.0
        return logits, torch.zeros(len(planes))

    search = asked.search(centre, 10, CPU, torch.float32)
    right = asked.right(search, torch.arange(10))
    assert right.view(2, 5)[:, [0, 3, 4]].tolist() == [[True, True, True]] * 2
    assert asked.right(search, torch.tensor([5])).tolist() == [True]


def test_the_professional_games_are_legal_and_have_181_moves() -> None:
    rules = Rules()
    games = pro_games(rules)
    assert [len(moves) for moves in games] == [30, 62, 42, 47]
    for moves in games:
        boards = rules.start(1)
        for move in moves:
            assert rules.legal(boards)[0, move]
            boards = rules.play(boards, torch.tensor([move]))
    with pytest.raises(ConfigError, match=r"board=5 .*pro_moves=false"):
        pro_games(Rules(5, 0.5))


def test_elo_follows_from_the_matches() -> None:
    history = elo.History()
    history.add(75, 100, promoted=True)
    history.add(50, 100, promoted=False)
    history.add(100, 100, promoted=True)
    first = 400 * math.log10(3)
    assert [row.elo for row in history.rows] == pytest.approx([first, first, first + 400 * math.log10(199)])
    assert history.generation == 3


def test_the_report_has_elo_against_generation(tmp_path: Path) -> None:
    module = minigo()
    module.write_report(tmp_path)
    assert not list(tmp_path.iterdir())
    module.history.add(6, 6, promoted=True)
    elo.write_csv(module.history.rows, tmp_path / "elo.csv")
    assert (tmp_path / "elo.csv").read_text().splitlines()[1].startswith("1,6,6,1,")


def test_a_frozen_network_is_known_by_its_digest(tmp_path: Path) -> None:
    frozen = net(4)
    torch.save(
        {"state_dict": {f"champion.{name}": value for name, value in frozen.state_dict().items()}}, tmp_path / "m"
    )
    (tmp_path / "empty").touch()
    (tmp_path / "damaged").write_bytes(b"\x80\x02J\x01")  # a pickle that ends within a number
    torch.save([1, 2], tmp_path / "numbers")
    digest = digest_of(frozen)
    assert digest_of(load_frozen(str(tmp_path / "m"), digest, SMALL)) == digest
    for file, given, sizes, words in (
        ("m", "0123", SMALL, "has the digest"),
        ("m", None, Sizes(), "no network of"),
        ("none", None, SMALL, "model.pt of a run"),
        ("empty", None, SMALL, "is not a run's model.pt. Next: give the model.pt of a run"),
        ("damaged", None, SMALL, "model.pt of a run"),
        ("numbers", None, SMALL, "model.pt of a run"),
        ("m", 12345678, SMALL, "frozen_digest=12345678: .* has the digest"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_frozen(str(tmp_path / file), given, sizes)


def test_a_run_has_the_digests_of_the_frozen_network_and_of_its_champion_as_tags(tmp_path: Path) -> None:
    first = minigo()
    torch.save({"state_dict": first.state_dict()}, tmp_path / "model.pt")
    digest = digest_of(first.champion)
    torch.manual_seed(5)
    second = minigo(opponents=["frozen"], frozen=str(tmp_path / "model.pt"))
    data = SelfPlayData()
    assert isinstance(data.viewed(first.view), Recorded)
    assert data.viewed(first.view).facts() == {"champion_digest": digest}
    facts = data.viewed(second.view).facts()
    assert facts == {"data.frozen_digest": digest, "champion_digest": digest_of(second.champion)}
    assert facts["champion_digest"] != digest


@pytest.mark.parametrize(("wins", "promoted"), [(54, False), (55, True)])
def test_a_network_that_wins_exactly_the_gates_share_is_promoted(
    monkeypatch: pytest.MonkeyPatch, wins: int, promoted: bool
) -> None:
    module = minigo(gate_games=100, gate=0.55)
    monkeypatch.setattr(Arena, "gate", lambda *_: torch.arange(100) < wins)
    monkeypatch.setattr(module, "log", lambda *_, **__: None)
    module._gate()
    assert [row.promoted for row in module.history.rows] == [promoted]


def test_a_step_lowers_the_loss_of_its_positions() -> None:
    module, data = minigo(), SelfPlayData()
    viewed = data.viewed(module.view)
    (batch,) = viewed.example_batches(16, CPU)
    optimizer = module.configure_optimizers()
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = module.training_step(batch, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(weight.grad is None for weight in module.champion.parameters())
    by_hand = training_loss(module.net, *(batch[name] for name in ("planes", "policies", "outcomes", "weights")))
    logits, values = module.net(batch["planes"])
    cross_entropy = torch.nn.functional.cross_entropy(logits, batch["policies"])
    torch.testing.assert_close(by_hand, cross_entropy + (values - batch["outcomes"]).square().mean())
