"""Generated ratings: their number, their shape, and that they are the same for everybody."""

from __future__ import annotations

import numpy as np
import pytest

from conf.schema import ConfigError
from trainers.data.latent_factors import Model, all_picks, model, picks_of_share
from trainers.data.latent_factors.model import least
from trainers.data.ratings import data, ratings
from trainers.data.ratings.interactions import hold_one_out, leave_last_out

pytestmark = pytest.mark.usefixtures("own_cache")
SIZE = 30_000


def test_there_are_as_many_as_asked_for_each_once() -> None:
    data = ratings(SIZE)
    held = data.interactions
    assert held.num_train == SIZE
    assert data.num_users == round(SIZE * model.USERS / model.ML_20M)
    counts = np.diff(held.start)
    assert counts.min() >= 19  # One more is held out.
    assert counts.max() <= data.num_items / 2
    assert counts.mean() > 1.3 * np.median(counts)  # some rate much
    users = np.repeat(np.arange(data.num_users), counts)
    key = users * data.num_items + held.items
    assert np.all(np.diff(key) > 0)  # ascending, each once
    assert not np.isin(np.arange(data.num_users) * data.num_items + held.held_out, key).any()
    assert 0 <= held.items.min() <= held.items.max() < data.num_items


def test_popularity_falls_and_tastes_differ() -> None:
    data = ratings(SIZE)
    held = data.interactions
    counts = np.bincount(held.items, minlength=data.num_items)
    tenths = [int(part.sum()) for part in np.array_split(counts, 10)]
    assert tenths[0] > 2 * tenths[4] > 2 * tenths[9]
    # Two users of one taste have more in common than popularity alone would give: neighbours by taste, and others.
    tastes = Model.of_size(SIZE).tastes
    rated = [set(held.items[first:last].tolist()) for first, last in zip(held.start[:-1], held.start[1:], strict=True)]
    near, far = [], []
    for user in range(60):
        order = np.argsort(-(tastes @ tastes[user]))
        near += [overlap(rated[user], rated[other]) for other in order[1:6]]
        far += [overlap(rated[user], rated[other]) for other in order[-5:]]
    assert np.mean(near) > 2 * np.mean(far)


def overlap(items: set[int], others: set[int]) -> float:
    return len(items & others) / min(len(items), len(others))


def test_they_are_the_same_for_everybody() -> None:
    """A change of what is generated has to raise generated.FORMAT, and makes earlier times to accuracy others'."""
    assert ratings(1000).version() == "979d6364e471"
    assert ratings(300_000).version() == "cc7dbd276b19"


def test_they_do_not_depend_on_how_many_processes_make_them() -> None:
    made = Model.of_size(SIZE)
    whole = picks_of_share(made, 0, 1)
    for of in (2, 3, 7):
        parts = [picks_of_share(made, share, of) for share in range(of)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.slow
def test_processes_make_what_one_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Model.of_size(SIZE)
    monkeypatch.setattr(model, "num_shares", lambda amount, worth: 2)
    np.testing.assert_array_equal(all_picks(SIZE, made), picks_of_share(made, 0, 1))


@pytest.mark.parametrize("count", [1, 20, 333, 999])
def test_the_least_are_found_wherever_they_lie(count: int) -> None:
    random = np.random.RandomState(count)
    greatest, smallest = np.arange(1000.0), np.arange(1000.0)  # what a sample has of the row
    greatest[:: model.STRIDE] += 5000.0
    smallest[:: model.STRIDE] -= 5000.0
    for row in (random.random_sample(1000), np.arange(1000.0), -np.arange(1000.0), greatest, smallest):
        expected = np.sort(row)[:count]
        np.testing.assert_array_equal(np.sort(row[least(row, count)]), expected)


def test_one_of_each_user_is_held_out_as_where_users_are_mixed() -> None:
    random = np.random.RandomState(0)
    counts = random.randint(2, 9, 50)
    items = np.concatenate([np.sort(random.permutation(30)[:count]) for count in counts])
    times = random.randint(0, 3, len(items))  # many are equal
    expected = leave_last_out(np.repeat(np.arange(50), counts), items, times, 30)
    made = hold_one_out(counts, items.astype(np.int32), times, 30)
    assert made.keys() == expected.keys()
    for name in made:
        assert made[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(made[name], expected[name])


def test_they_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ratings(2000)
    monkeypatch.setattr(data, "generate", lambda size: pytest.fail("made again"))
    assert ratings(2000).version() == first.version()


@pytest.mark.parametrize("size", [0, -5, 999, 19_861_771])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"dataset\.size={size}: must be 1000 to 19861770"):
        ratings(size)
