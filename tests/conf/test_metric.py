"""The declaration of a metric: its bounds, and which way is better."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from conf import metric
from conf.launch_options import ProgramConfig
from conf.metric import HIGHER, LOWER
from conf.schema import ConfigError, RunConfig
from tests.support import studied
from tests.support.composing import EIGHT_GPUS, ROOT, composed
from tracking.request import checks
from tracking.request.evaluation_checks import check_best, check_directions

NAMES = ("fid", "bits_per_byte", "val_loss_epoch", "latency_ms", "exact_answer", "power")


@pytest.mark.parametrize(
    ("written", "bounds", "better"),
    [
        ([0.0, 1.0], (0.0, 1.0), None),
        ([0, 100, "higher"], (0.0, 100.0), HIGHER),
        ([0.0, 8.0, "lower"], (0.0, 8.0), LOWER),
        ("lower", None, LOWER),
        ("higher", None, HIGHER),
    ],
)
def test_a_declaration_has_bounds_a_direction_or_both(
    written: object, bounds: tuple[float, float] | None, better: str | None
) -> None:
    assert metric.parse(written) == metric.Declared(bounds, better)


@pytest.mark.parametrize(
    "written", ["", "down", [], ["lower"], [0.0, "lower"], [0, 1, "up"], [0, 1, 2], None, 3, [True, 1]]
)
def test_what_is_no_declaration_is_refused_with_the_forms_there_are(written: object) -> None:
    config = studied.config(metrics={"accuracy": [0.0, 1.0], "fid": written})
    with pytest.raises(ConfigError, match=r"model\.metrics\.fid: .*Allowed: \[LOWEST, HIGHEST, lower\]"):
        check_directions(config)


@pytest.mark.parametrize("name", NAMES)
def test_a_direction_is_what_was_declared_or_what_a_target_says_and_no_name_says_it(name: str) -> None:
    assert studied.config(metrics={name: [0.0, 9.0]}, targets={}).directions() == {}
    for better in metric.DIRECTIONS:
        assert studied.config(metrics={name: better}, targets={}).directions() == {name: better}
    assert studied.config(metrics={name: [0, 9]}, targets={name: "<=3"}).directions() == {name: LOWER}
    assert studied.config(metrics={name: [0, 9]}, targets={name: 3.0}).directions() == {name: HIGHER}


def test_a_program_declares_directions_beside_its_expressions() -> None:
    said = {"eval/fid": [r"fid (\S+)", "lower"], "eval/accuracy": r"acc (\S+)", "speed": [r"at (\S+)", "higher"]}
    config = composed(["model=program", "program.command=true"])
    config.program.metrics = said
    assert config.program.patterns() == {"eval/fid": r"fid (\S+)", "eval/accuracy": r"acc (\S+)", "speed": r"at (\S+)"}
    assert config.directions() == {"fid": LOWER, "speed": HIGHER}
    checks.check_run(config, EIGHT_GPUS)
    for wrong in (["a (.)"], [r"a (.)", "down"], 3):
        config.program.metrics = {"eval/fid": wrong}
        with pytest.raises(ConfigError, match=r"program\.metrics\.eval/fid=.*EXPRESSION, lower \| higher"):
            checks.check_run(config, EIGHT_GPUS)


def test_the_command_line_takes_a_program_s_direction() -> None:
    words = ["model=program", "program.command=true", r'+program.metrics={eval/fid: ["fid (\\S+)", lower]}']
    assert composed(words).directions() == {"fid": LOWER}


@pytest.mark.parametrize(
    ("declared", "target", "says"),
    [("lower", 0.9, "higher is better for fid, but lower is declared. Next: give <=NUMBER"),
     ("higher", "<=0.9", "lower is better for fid, but higher is declared. Next: give a number")],
)  # fmt: skip
def test_a_target_that_contradicts_a_declaration_is_refused(declared: str, target: object, says: str) -> None:
    config = studied.config(metrics={"fid": declared}, targets={"fid": target})
    with pytest.raises(ConfigError, match=says):
        check_directions(config)
    check_directions(studied.config(metrics={"fid": declared}, targets={}))


def test_the_best_weights_are_refused_where_nothing_says_which_evaluation_is_better() -> None:
    check_best(studied.config(metrics={"fid": [0, 9]}, targets={"fid": "<=3"}, save_model="best"))
    check_best(studied.config(metrics={"fid": "lower"}, targets={}, save_model="best"))
    check_best(studied.config(metrics={"fid": [0, 9]}, targets={}, save_model="final"))
    config = studied.config(metrics={"fid": [0, 9]}, targets={}, save_model="best")
    with pytest.raises(ConfigError, match=r"save_model=best: .* no direction is declared for fid. Next: .*fid: lower"):
        check_best(config)


def test_a_direction_changes_nothing_that_is_measured() -> None:
    """Or jobs of older sweeps would be run again."""
    bare = studied.config(metrics={"accuracy": [0.0, 1.0]})
    declared = studied.config(metrics={"accuracy": [0.0, 1.0, "higher"], "loss": "lower"})
    assert bare.config_hash() == declared.config_hash()
    assert bare.config_hash() != studied.config(metrics={"accuracy": [0.0, 2.0]}).config_hash()
    program = RunConfig(program=ProgramConfig(metrics={"eval/fid": "x(.)"}))
    program.model.workload = "program:COMMAND"
    other = copy.deepcopy(program)
    other.program.metrics = {"eval/fid": ["x(.)", "lower"]}
    assert program.config_hash() == other.config_hash()


@pytest.mark.parametrize("path", sorted((ROOT / "conf/model").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_model_of_ours_declares_the_direction_of_each_of_its_metrics(path: Path) -> None:
    model = yaml.safe_load(path.read_text())
    assert metric.directions(model["metrics"]).keys() == model["metrics"].keys()
