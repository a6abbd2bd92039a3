"""The seed of a script's run: what the script has seeded with, and nothing where it has not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tracking.lightning import time_trial
from tracking.record import journal, run_folder


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "torch_seed", "seed"), [({}, None, None), ({}, 42, 42), ({"PL_GLOBAL_SEED": "7"}, 42, 7)]
)
def test_a_run_has_the_seed_of_its_script_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], torch_seed: int | None, seed: int | None
) -> None:
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    torch.seed() if torch_seed is None else torch.manual_seed(torch_seed)
    with time_trial(runs_dir=str(tmp_path), offline=True, device="cpu", system_metrics_interval_sec=0) as trial:
        trial.step(8)
    (folder,) = tmp_path.glob("2*")
    assert folder.name.endswith("-loop-own-own-1cpu" + ("" if seed is None else f"-seed{seed}"))
    rows = [record.values for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == "params"]
    assert rows[0].get("seed") == seed
