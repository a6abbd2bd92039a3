"""How often a launcher sends that mirrors many runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studied import config, make_run
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.store.server import TrackingUnavailable


@pytest.mark.parametrize(("num_mirrors", "pause_sec"), [(1, 1), (5, 1), (50, 10), (200, 40)])
def test_many_mirrors_of_a_launcher_share_what_it_may_compute(
    num_mirrors: int, pause_sec: float, tmp_path: Path
) -> None:
    """Each send costs about 10 ms of a core: 200 mirrors that sent every second would need two."""
    folder = make_run(tmp_path, config(), f"sqlite:///{tmp_path / 'mlflow.db'}")
    thread = MirrorThread(folder, num_mirrors=lambda: num_mirrors)
    assert thread._attempt(lambda: 0) == pause_sec


def test_a_mirror_counts_until_its_run_has_ended(tmp_path: Path) -> None:
    thread = MirrorThread(make_run(tmp_path, config(), f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert thread.mirrors_training
    thread.ended()
    assert not thread.mirrors_training


def test_a_wait_for_an_upload_is_full_of_tries(tmp_path: Path) -> None:
    """An upload takes several answers, so at a server that fails now and then it takes several tries."""

    def fails() -> int:
        raise TrackingUnavailable("500")

    thread = MirrorThread(make_run(tmp_path, config(), f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert [thread._attempt(fails) for _ in range(6)] == [1, 2, 4, 8, 15, 15]
    thread._deadline = 60
    assert [thread._attempt(fails) for _ in range(3)] == [2, 2, 2]
