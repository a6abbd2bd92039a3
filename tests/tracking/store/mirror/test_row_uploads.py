"""What a server refuses of a batch, as far as a real one of today would not; test_mirror.py has what it does refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracking.record.journal import Journal
from tracking.store.mirror import row_uploads
from tracking.store.mirror.log_batches import LogBatch, log_batches
from tracking.store.server.server_errors import TrackingRefused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class OldServer:
    """The client of a server that takes no text of more than ten characters, or no metrics at all."""

    def __init__(self, takes_metrics: bool = True) -> None:
        self.stored: dict[str, Any] = {}
        self._takes_metrics = takes_metrics

    @contextmanager
    def request(self) -> Iterator[OldServer]:
        yield self

    def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self)

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        if any(len(text.value) > 10 for text in (*params, *tags)) or (metrics and not self._takes_metrics):
            raise TrackingRefused("too long")
        self.stored |= {each.key: each.value for each in (*metrics, *params, *tags)}

    def get_run(self, run_id: str) -> SimpleNamespace:
        return SimpleNamespace(data=SimpleNamespace(params={}))


def batch(folder: Path) -> LogBatch:
    journal = Journal(folder / "journal.jsonl")
    journal.params({"argv": "x" * 11, "seed": 1, "lr": 0.1})
    journal.tags({"short": "a", "long": "y" * 11})
    journal.metrics({"loss": 2.0})
    [only] = log_batches(folder / "journal.jsonl", 0)
    return only


def test_texts_that_an_older_server_refuses_are_named_and_hold_up_nothing(tmp_path: Path) -> None:
    server, sent = OldServer(), batch(tmp_path)
    assert row_uploads.send(server, "run", "uid", sent) == ["params argv", "tags long"]  # type: ignore[arg-type]
    assert server.stored == {"seed": "1", "lr": "0.1", "short": "a", "loss": 2.0, "timetrial.uid": "uid"}
    assert sent.refused == ["params: the server refuses 'argv': too long", "tags: the server refuses 'long': too long"]
    assert (sent.params, sent.tags) == ({"seed": "1", "lr": "0.1"}, {"short": "a"})


def test_metrics_that_are_refused_are_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(TrackingRefused):
        row_uploads.send(OldServer(takes_metrics=False), "run", "uid", batch(tmp_path))  # type: ignore[arg-type]
