"""python -m tracking diff --kernels: what two profiles share, what it takes of either, and what is in one alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.studied import config, make_run, make_sweep
from tests.tracking.measure.kernels.traces import EXCHANGE, FORWARD, PRODUCT, UPDATE, of_gpu
from tracking.__main__ import main
from tracking.measure import kernels

OTHER = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt"


def profiled(folder: Path, document: dict[str, Any], notes: tuple[str, ...] = ()) -> None:
    summary = kernels.summarize(kernels.parse(document)).plain()
    kernels.write(folder, kernels.Profile(asked_steps=2, num_steps=2, summaries={"0": summary}, notes=notes))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """B does the product with another kernel, and exchanges nothing."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sweep = make_sweep(tmp_path / "runs", "pair", uri, 2)
    first, second = (make_run(sweep, config(seed=seed), uri, 0.1) for seed in (1, 2))
    profiled(first, of_gpu())
    events = [event for event in of_gpu()["traceEvents"] if event.get("name") != EXCHANGE]
    renamed = [event | {"name": OTHER} if event.get("name") == PRODUCT else event for event in events]
    profiled(second, {"traceEvents": renamed}, ("2 of 20 steps: few",))
    return first, second


def asked(capsys: pytest.CaptureFixture[str], *runs: Path, json_too: bool = False) -> tuple[int, str]:
    words = ["diff", *map(str, runs), "--kernels", "--from-folders", "--runs-dir", str(runs[0].parent.parent)]
    code = main([*words, "--json"] if json_too else words)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_kernels_in_both_and_in_one_alone(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, output = asked(capsys, *pair, json_too=True)
    assert code == 0, output
    answer = json.loads(output[: output.rindex("}") + 1])
    # A: 300 + 200 + 150 + 50 us, 250 of them shared; B: 300 + 200 + 50.
    assert answer["sentence"] == "2 kernels are in both, with 36% of the kernels' time in A and 45% in B"
    rows = {row["name"]: row for row in answer["kernels"]}
    assert {name for name, row in rows.items() if row["shared"]} == {FORWARD, UPDATE}
    assert rows[PRODUCT]["ms"] == [pytest.approx(0.3), None]
    assert rows[OTHER]["ms"] == [None, pytest.approx(0.3)]
    assert rows[FORWARD]["share"] == [pytest.approx(200 / 700), pytest.approx(200 / 550)]
    kinds = {row["class"]: row["ms"] for row in answer["classes"]}
    assert kinds["matrix product"] == [pytest.approx(0.3), pytest.approx(0.3)]
    assert kinds["collective"] == [pytest.approx(0.15), None]
    assert any("2 of 20 steps: few" in note for note in answer["notes"])
    for side, run in enumerate(pair):
        own = kernels.read((run / kernels.PROFILE).read_text()).first
        assert answer["steps"][side] == {key: own[key] for key in ("step_ms", "busy_ms")}
        gaps = [row["ms"][side] for row in answer["gaps"] if row["ms"][side] is not None]
        assert sum(gaps) == pytest.approx(own["step_ms"] - own["busy_ms"])
        assert len(gaps) == len(own["gaps"])


def test_a_kernel_is_shared_though_a_program_cannot_tell_the_optimizers(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    events = [event for event in of_gpu()["traceEvents"] if event.get("cat") == "kernel"]
    summary, notes = kernels.program_trace.summary_of({"traceEvents": events})
    profile = kernels.Profile(asked_steps=1, num_steps=1, summaries={"0": summary.plain()}, notes=notes)
    kernels.write(pair[1], profile)
    code, output = asked(capsys, *pair, json_too=True)
    assert code == 0, output
    answer = json.loads(output[: output.rindex("}") + 1])
    assert answer["sentence"].startswith("4 kernels are in both, with 100% of the kernels' time in A and 100% in B")
    assert {row["class"] for row in answer["kernels"] if row["name"] == UPDATE} == {"optimizer"}


def test_times_of_a_trace_without_steps_are_not_called_those_of_a_step(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    summary = kernels.summarize(kernels.parse(of_gpu())).plain()
    for note in ("times and calls are of the whole trace, 3 ms", "the whole trace, 3 ms, counts as one step"):
        notes = [f"the trace marks no steps: {note}"]  # The second is of an earlier version.
        kernels.write(pair[1], kernels.Profile(asked_steps=1, num_steps=1, summaries={"0": summary}, notes=notes))
        code, output = asked(capsys, *pair)
        assert code == 0, output
        assert "and the whole trace takes 1 ms in B" in output
        assert "A: ms a step" in output
        assert "B: ms in all" in output
        assert "B: ms a step" not in output
        profile = kernels.read((pair[1] / kernels.PROFILE).read_text())
        assert profile.words().endswith("of the trace")
        _, output = asked(capsys, *pair, json_too=True)
        assert json.loads(output[: output.rindex("}") + 1])["per_step"] == [True, False]


def test_it_is_shown_in_tables(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, output = asked(capsys, *pair)
    assert code == 0, output
    titles = ["a traced step takes", "2 kernels are in both", "by class", "kernels in both", "kernels only in A",
              "kernels only in B", "no kernel ran, while the host did"]  # fmt: skip
    places = [output.index(title) for title in titles]
    assert places == sorted(places)
    assert f"A: {pair[0].name}" in output
    only_in_b = output[places[-2] : places[-1]]
    assert OTHER in only_in_b
    assert FORWARD not in only_in_b
    assert "cudaLaunchKernel" in output[places[-1] :] or "Python" in output[places[-1] :]


def test_what_cannot_be_compared_is_refused(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = pair
    third = make_run(first.parent, config(seed=3), "sqlite:///x", 0.1)
    code, output = asked(capsys, first, second, third)
    assert code == 2
    assert "not 3. Next: name two" in output
    code, output = asked(capsys, first, third)
    assert code == 2
    assert "train it with profile=true" in output
    (second / kernels.PROFILE).write_text("{")
    code, output = asked(capsys, first, second)
    assert code == 2
    assert "is damaged" in output
    profile = json.loads((first / kernels.PROFILE).read_text())
    for step_ms in (0, "a"):
        profile["summaries"]["0"]["step_ms"] = step_ms
        (second / kernels.PROFILE).write_text(json.dumps(profile))
        code, output = asked(capsys, first, second)
        assert code == 2
        assert f"{second.name}: profile.json: is damaged (rank 0: step_ms is" in output
    kernels.write(second, kernels.Profile(asked_steps=2, num_steps=0, notes=["no step was traced: too large"]))
    code, output = asked(capsys, first, second)
    assert code == 2
    assert "no step was traced" in output
