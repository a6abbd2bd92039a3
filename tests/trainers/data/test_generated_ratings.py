"""Generated ratings: their number, their shape, and that they are the same for everybody."""

from __future__ import annotations

import numpy as np
import pytest

from conf.schema import ConfigError
from trainers.data.ratings import generated, ratings

pytestmark = pytest.mark.usefixtures("own_cache")
SIZE = 30_000


def test_there_are_as_many_as_asked_for_each_once() -> None:
    data = ratings(SIZE)
    held = data.interactions
    assert held.num_train == SIZE
    assert data.num_users == round(SIZE * generated.USERS / generated.ML_20M)
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
    rng = np.random.RandomState(generated.SEED)
    generated.ratings_of_users(rng, data.num_users, data.num_items, SIZE + data.num_users)
    _, tastes, _ = generated.latent(rng, data.num_users, data.num_items)
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


def test_they_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ratings(2000)
    monkeypatch.setattr(generated, "generate", lambda size: pytest.fail("made again"))
    assert ratings(2000).version() == first.version()


@pytest.mark.parametrize("size", [0, -5, 999, 19_861_771])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"dataset\.size={size}: give from 1000 to 19861770"):
        ratings(size)
