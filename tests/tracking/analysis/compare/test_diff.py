"""python -m tracking diff: only what differs, biggest relative change first, on run folders."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.compare.diff import change_words, shown
from tracking.analysis.results.flat_keys import differing, flat, relative_change


def fingerprint(driver: str, clock: int, **packages: str) -> dict[str, Any]:
    gpus = [{"name": "NVIDIA H200", "max_sm_clock_mhz": clock}]
    return {"gpus": gpus, "software": {"driver": driver, "packages": packages}, "host": {"node": "one"}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{root / 'mlflow.db'}"
    sweep = make_sweep(root / "runs", "pair", uri, 2)
    old, new = fingerprint("570.1", 1980, torch="2.11"), fingerprint("580.1", 1755, torch="2.11", numpy="2.0")
    make_run(sweep, config(seed=1, precision="bf16"), uri, 0.1, fingerprint=old, tags={"data.version": "a1"})
    make_run(sweep, config(seed=2), uri, 0.2, fingerprint=new, tags={"data.version": "b2"})
    twins = make_sweep(root / "runs", "twins", uri, 2)
    for _ in range(2):
        make_run(twins, config(seed=3), uri, 0.1, fingerprint=old)
    many = make_sweep(root / "runs", "many", uri, 9)
    for seed in range(9):
        make_run(many, config(seed=seed), uri, failure="oom" if seed == 8 else None)
    return root


@pytest.fixture
def diff(store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*selectors: str) -> tuple[int, str]:
        code = main(["diff", *selectors, "--from-folders", "--runs-dir", str(store / "runs")])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def rows(output: str) -> dict[str, list[str]]:
    """The cells of each row by key, in the order printed."""
    lines = [line for line in output.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    return {key: rest for key, *rest in cells}


def test_only_what_differs_is_shown_biggest_change_first(diff: Any) -> None:
    code, output = diff("pair")
    assert code == 0, output
    cells = rows(output)
    keys = list(cells)
    assert cells["seed"] == ["1", "2", "+100.0%"]
    assert cells["precision.name"] == ["bf16", "fp32", ""]
    assert cells["software.driver"] == ["570.1", "580.1", ""]
    assert cells["data.version"] == ["a1", "b2", ""]
    assert cells["gpus.0.max_sm_clock_mhz"] == ["1980", "1755", "-11.4%"]
    assert cells["software.packages.numpy"] == ["(none)", "2.0", ""]
    assert cells["throughput/samples_per_sec"] == ["320", "160", "-50.0%"]
    assert not {"model.name", "software.packages.torch", "gpus.0.name", "status", "world_size"} & set(keys)
    assert keys.index("gpus.0.max_sm_clock_mhz") < keys.index("software.packages.numpy")
    results = [key for key in keys if "/" in key and not key.startswith("system/")]
    changes = [abs(float(cells[key][2].strip("%"))) for key in results]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 90
    # The stack differs, so that what it did is next.
    assert re.search("stack.*results.*configuration.*environment.*system", output, re.DOTALL)
    assert keys[0] == "software.driver"


def test_where_a_run_is_recorded_is_no_difference(diff: Any) -> None:
    _, output = diff("pair")
    assert not [key for key in rows(output) if key.startswith(("tracking.", "runs_dir", "sweep"))]


def test_twins_differ_in_nothing(diff: Any) -> None:
    code, output = diff("twins")
    assert code == 0
    assert [line for line in output.splitlines() if line] == [
        f"{group}: no difference"
        for group in ("stack", "configuration", "environment", "results", "system metrics, last values")
    ]


def test_runs_stand_in_the_order_asked_for_and_change_is_against_the_first(diff: Any, store: Path) -> None:
    first, second = sorted((store / "runs" / "pair").glob("vgg-*"))
    _, output = diff(str(first), str(second))
    _, reverse = diff(str(second), str(first))
    assert rows(output)["throughput/samples_per_sec"] == ["320", "160", "-50.0%"]
    assert rows(reverse)["throughput/samples_per_sec"] == ["160", "320", "+100.0%"]


@pytest.mark.parametrize("fingerprinted", [True, False])
def test_of_two_stacks_it_says_first_what_they_differ_in_then_what_that_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fingerprinted: bool
) -> None:
    sweep = make_sweep(tmp_path, "stacks", "sqlite:///none.db", 2)
    old = {"driver": "535.104", "cuda": "12.4", "cudnn": "9.1.0", "nccl": "2.21.5", "torch": "2.6.0+cu124"}
    new = {"driver": "580.159", "cuda": "13.0", "cudnn": "9.19.0", "nccl": "2.28.9", "torch": "2.11.0+cu130"}
    for seed, (software, image, step_sec) in enumerate(((old, "a:1", 0.2), (new, "b:2", 0.1)), 1):
        taken = {"software": software, "host": {"image": image, "node": f"n{seed}"}} if fingerprinted else None
        tags = {f"env.{key}": value for key, value in {**software, "image": image, "node": f"n{seed}"}.items()}
        make_run(sweep, config(seed=seed), "sqlite:///none.db", step_sec, fingerprint=taken, tags=tags)
    assert main(["diff", "stacks", "--from-folders", "--runs-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    keys = list(rows(output))
    assert [key.rpartition(".")[2] for key in keys[:6]] == ["torch", "cudnn", "nccl", "cuda", "driver", "image"]
    assert rows(output)[keys[0]][:2] == ["2.6.0+cu124", "2.11.0+cu130"]
    assert "time/to_accuracy_sec" in keys[6:20]
    node = "host.node" if fingerprinted else "env.node"
    assert keys.index("time/to_accuracy_sec") < keys.index("seed") < keys.index(node)


def test_a_failed_run_beside_a_good_one(diff: Any, store: Path) -> None:
    _, output = diff("vgg-digits-fp32-1gpu-seed7", "vgg-digits-fp32-1gpu-seed8")
    cells = rows(output)
    assert cells["status"][:2] == ["FINISHED", "FAILED"]
    assert cells["failure"][:2] == ["(none)", "oom"]
    assert cells["throughput/samples_per_sec"] == ["320", "(none)", ""]
    assert "has no fingerprint.json; compared by tags instead" in output


def test_a_run_without_a_readable_fingerprint_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make_sweep(tmp_path, "bare", "sqlite:///none.db", 2)
    none = dict.fromkeys(("env.gpu", "env.gpu_count", "env.driver", "env.cuda"))
    good = make_run(sweep, config(seed=1), "sqlite:///none.db", fingerprint=fingerprint("570.1", 1980))
    make_run(sweep, config(seed=2), "sqlite:///none.db", tags=none)
    assert main(["diff", "bare", "--from-folders", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "seed2 has no fingerprint.json; compared by tags instead" in printed
    assert "`python -m tracking sync --again FOLDER` uploads it" in printed
    assert "seed2: no env.* tags either, so the GPU, driver and CUDA are not known" in printed
    (good / "fingerprint.json").write_text('{"gpus": [')
    assert main(["diff", "bare", "--from-folders", "--runs-dir", str(tmp_path)]) == 0
    assert "seed1 has a damaged fingerprint.json; compared by tags instead" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(diff: Any) -> None:
    assert diff("nowhere", "pair") == (2, diff("nowhere", "pair")[1])
    assert "nowhere: no sweep, experiment or run" in diff("nowhere", "pair")[1]
    code, words = diff("vgg-digits-fp32-1gpu-seed7")
    assert code == 2
    assert "a difference needs two" in words
    code, words = diff("many")
    assert code == 2
    assert "names 9 runs; at most 8" in words


settings = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(-5, 5) | st.sampled_from(["x", "y"]))


@given(st.lists(settings, min_size=2, max_size=4))
def test_every_difference_is_found_and_no_other(some: list[dict[str, Any]]) -> None:
    differences = dict(differing(some))
    for key in "abcdef":
        values = {repr(facts.get(key, "(none)")) for facts in some}
        assert (key in differences) == (len(values) > 1)
    changes = [relative_change(values) for values in differences.values()]
    sizes = [abs(change) for change in changes if change is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert changes == sorted(changes, key=lambda change: change is None)


def test_a_change_is_relative_to_the_size_of_the_first_value_and_none_of_what_is_no_number() -> None:
    assert relative_change([2.0, 3.0, 1.5]) == 0.5
    assert relative_change([-2.0, -3.0]) == -0.5
    assert relative_change([0, 1]) == math.inf
    assert change_words([0, -1]) == "from 0"
    assert relative_change([True, False]) is None
    assert relative_change(["13.0", "13.2"]) is None
    assert relative_change([1.0, None]) is None


def test_nan_is_the_same_as_nan_and_a_change_to_or_from_it_has_no_size() -> None:
    nan, other_nan, inf = float("nan"), float("nan"), math.inf
    rows = differing(
        [{"a": nan, "b": [nan], "c": nan, "d": 1.0}, {"a": other_nan, "b": [other_nan], "c": 2.0, "d": 3.0}]
    )
    assert [key for key, _ in rows] == ["d", "c"]
    for values in ([1.0, nan], [nan, 1.0], [1.0, 2.0, nan], [1.0, inf], [inf, 1.0], [0, nan]):
        assert relative_change(values) is None
        assert change_words(values) == ""


def test_cells_stay_short() -> None:
    assert flat({"a": [{"b": 1}], "c": {}, "d": None}, into_lists=True) == {"a.0.b": 1, "c": "(none)", "d": None}
    assert flat({"a": [3, 1], "b": {"c": 2}}) == {"a": [3, 1], "b.c": 2}
    assert shown("diff\n" * 50).endswith("…")
    assert len(shown("diff\n" * 50)) == 60
    assert shown(1234567.891) == "1,234,568"
    assert shown(None) == "(none)"
