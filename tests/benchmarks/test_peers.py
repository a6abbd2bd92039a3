"""Benchmarks of steps beside peers: a ratio's two sides are of one round on one machine, and docs print those alone."""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.peers import beside, translation_steps
from benchmarks.peers.turns import Turns
from tests.support.commands import HANGS_SEC, ROOT
from trainers.data.text import synthetic

RESULTS = ROOT / "docs" / "results"
PAGE = (RESULTS / "2026-11-26-h200-peers.md").read_text(encoding="utf-8")
BOTTLENECK = (ROOT / "docs/bottleneck.md").read_text(encoding="utf-8")
MADE = {"gpu": "G", "cores": "2", "host": "a", "driver": "1", "torch": "2", "commit": "c"}


def row(variant: str, number: int, rate: float, **other: str) -> beside.Row:
    measured = {"variant": variant, "round": str(number), "steps": "4", "step_ms": str(1e3 / rate), "rate": str(rate)}
    return {"model": "M", "batch": "8", "unit": "images/s", "padding": ""} | MADE | measured | other


@pytest.fixture(scope="module")
def published() -> list[beside.Row]:
    return beside.read([RESULTS / "h200_steps_beside_peers.csv"])


def test_a_ratio_is_of_a_round_and_both_sides_are_printed() -> None:
    rows = [row(beside.OURS, 0, 20), row("peer: as it comes", 0, 10), row("peer: tuned", 0, 16)]
    rows += [row("peer: tuned", 1, 40), row("peer: as it comes", 1, 10), row(beside.OURS, 1, 30)]
    [_, variants] = beside.comparisons(rows)[0]
    assert beside.ratios(variants, "peer: tuned") == [1.25, 0.75]
    assert "| 25.0 ± 7.1 images/s | 2.50 (2.00 to 3.00) | 1.00 (0.75 to 1.25): tuned |" in beside.summary(rows)
    table = beside.table(rows)
    assert "**ours** | 2 x 4 |" in table
    assert "peer: tuned | 2 x 4 |" in table
    assert beside.machines(rows) == ["gpu G, cores 2, host a, driver 1, torch 2, commit c"]


@pytest.mark.parametrize("key", beside.MACHINE)
def test_two_machines_or_commits_make_no_ratio(key: str) -> None:
    rows = [row(beside.OURS, 0, 20), row("peer: as it comes", 0, 10, **{key: "another"})]
    with pytest.raises(ValueError, match="several machines or commits"):
        beside.table(rows)


@pytest.mark.parametrize("rows", [[("ours", 0), ("peer: as it comes", 1)], [("peer: as it comes", 0)]])
def test_rounds_that_only_one_side_has_make_no_ratio(rows: list[tuple[str, int]]) -> None:
    with pytest.raises(ValueError, match="different rounds"):
        beside.summary([row(name, number, 10) for name, number in rows])


def test_each_round_goes_through_the_variants_in_the_reverse_order() -> None:
    turns: list[str] = []

    def variant(name: str) -> beside.Variant:
        return beside.Variant(lambda: turns.append(name), 8.0)

    asked = argparse.Namespace(rounds=3, steps=1, commit="c")
    compared = beside.Comparison("M", 8, "images/s", "fp32")
    ready = {name: variant(name) for name in (beside.OURS, "peer: as it comes")}
    rows = beside.in_turns(compared, ready, asked, torch.device("cpu"))
    ours, peer = ready
    assert [turn for turn, before in zip(turns, ["", *turns], strict=False) if turn != before] == [
        ours,
        peer,
        ours,
        peer,
    ]
    assert [(row["round"], row["variant"]) for row in rows][2:4] == [(1, peer), (1, ours)]


def test_rounds_wait_for_whoever_gets_ready_beside_them(tmp_path: Path) -> None:
    measures, gets_ready = (Turns(str(tmp_path / "turns")) for _ in range(2))
    ended: list[str] = []

    def rounds() -> None:
        with measures:
            ended.append("rounds")

    thread = threading.Thread(target=rounds)
    thread.start()
    thread.join(0.05)
    ended.append("ready")
    gets_ready.leave()
    thread.join(HANGS_SEC)
    measures.leave()
    assert ended == ["ready", "rounds"]


@pytest.mark.parametrize("room", [512, 13_824])
def test_peers_have_each_pair_once_in_full_batches_of_about_one_length(room: int) -> None:
    data = synthetic(20_000)
    steps = translation_steps.fairseq_steps(data, room)
    assert sorted(np.concatenate([step.pairs for step in steps])) == list(range(20_000))
    assert all(len(step.pairs) * max(step.width) <= room for step in steps)
    assert all(len(step.pairs) % 8 == 0 or len(step.pairs) < 8 for step in steps[:-1])
    source, target = data.train.lengths()
    assert all((source[step.pairs].max(), target[step.pairs].max()) == step.width for step in steps)
    places = sum(len(step.pairs) * sum(step.width) for step in steps)
    unsorted = len(source) * (int(source.max()) + int(target.max()))
    real = int(source.sum() + target.sum())
    assert places - real < (unsorted - real) / 10


def test_the_published_tables_are_those_of_the_rows(published: list[beside.Row]) -> None:
    assert beside.table(published) in PAGE
    assert beside.summary(published) in PAGE


def test_the_published_rows_are_of_one_machine_and_commit_which_the_page_names(published: list[beside.Row]) -> None:
    assert len(beside.machines(published)) == 1
    made_with = " ".join(PAGE.partition("## Made with")[2].split())
    for key in ("gpu", "host", "driver", "torch", "commit"):
        assert published[0][key] in made_with, key


def test_no_page_for_users_has_a_ratio_of_its_own() -> None:
    """Ratios to peers stand on the pages of results, which name both sides."""
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"[\d.]+ (?:x|times) (?:ours|as fast as (?:PyTorch|torchvision|plain)).*", text), path


def test_the_share_of_a_training_that_memory_took_is_that_of_its_runs() -> None:
    with (RESULTS / "h200_resnet50_limits.csv").open(encoding="utf-8", newline="") as file:
        shares = [100 * float(row["dram_fraction"]) for row in csv.DictReader(file)]
    error = statistics.stdev(shares) / len(shares) ** 0.5
    assert f"| H200 | traffic of the GPU's memory | {statistics.mean(shares):.1f} ± {error:.1f} % |" in BOTTLENECK


SMOKE: dict[str, list[str]] = {
    "translation_steps": ["--tiny"],
    "ncf_steps": ["--batch-sizes", "500", "--size", "20000"],
    "torchvision_steps": [
        "--models", "resnet50", "--variants", "as it comes", "--batch-size", "1", "--compile-limit", f"{HANGS_SEC}",
        "--limit", f"{4 * HANGS_SEC}",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SMOKE)
def test_a_benchmark_prints_both_sides_from_one_call(name: str, tmp_path: Path) -> None:
    command = [sys.executable, f"benchmarks/peers/{name}.py", "--precision", "fp32", "--steps", "1", "--rounds", "1"]
    environ: dict[str, Any] = {**os.environ, "TIMETRIAL_CACHE": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    out = subprocess.run(
        [*command, "--commit", "c", "--out", str(tmp_path / "rows.csv"), *SMOKE[name]],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=HANGS_SEC,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    rows = beside.read([tmp_path / "rows.csv"])
    assert beside.tables(rows) in out.stdout
    for _, variants in beside.comparisons(rows):
        assert beside.OURS in variants
        assert any(beside.AS_IT_COMES in variant for variant in variants)
