"""Axes, budgets and objectives of a search: read as they were typed, or refused with words that help."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st

import launch
from conf.launch_options import SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.analysis.search import Axis
from tracking.jobs.search.axes import axis_of, default_axes
from tracking.machine.environment.nvml import Gpu
from tracking.request import checks, refusal
from tracking.request.command_line.arguments import hydra_argument
from tracking.request.search_options import budget_of, objectives_of, setting_overrides

SEARCH = ("search=quickest", "model=vgg", "dataset=digits")


def axis(word: str) -> dict[str, Any]:
    return axis_of(word, *launch.parsed_axis(word))


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("batch_size=8,16", {"key": "batch_size", "choices": (8, 16)}),
        ("batch_size=choice(8)", {"key": "batch_size", "choices": (8,)}),
        ("gpus=range(1,9,3)", {"key": "gpus", "choices": (1, 4, 7)}),
        ("precision=fp32,bf16", {"key": "precision", "choices": ("fp32", "bf16")}),
        ("compile=true,false", {"key": "compile", "choices": (True, False)}),
        ("x='a b','c'", {"key": "x", "choices": ("a b", "c")}),
        (
            "model.optimizer.lr=interval(0.1,1)",
            {"key": "model.optimizer.lr", "low": 0.1, "high": 1.0, "log": False, "integer": False},
        ),
        ("b=tag(log,interval(2,64))", {"key": "b", "low": 2.0, "high": 64.0, "log": True, "integer": True}),
        ("b=interval(1_6, +6_4)", {"key": "b", "low": 16.0, "high": 64.0, "log": False, "integer": True}),
    ],
)
def test_an_axis_is_read_as_hydra_writes_sweeps(word: str, fields: dict[str, Any]) -> None:
    assert axis(word) == fields
    Axis(**fields)


def test_of_many_numbers_the_ends_are_checked_before_a_search() -> None:
    assert Axis(**axis("batch_size=range(8,5000,8)")).to_check == (8, 4992)
    assert Axis(**axis("batch_size=interval(8,64)")).to_check == (8, 64)
    assert Axis(**axis("gpus=range(1,9)")).to_check == tuple(range(1, 9))


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("model.optimizer.lr=interval(0.1,0.01)", "begins at 0.1 and ends at 0.01. .* give the lower end"),
        ("b=tag(log,interval(0,1))", "Allowed on a logarithmic scale: above 0"),
        ("b=interval(nan,1)", "give the lower end first"),
        ("b=interval(2,2)", "Allowed: two different finite numbers"),
        ("b=tag(lgo,interval(1,2))", "no such tag as lgo. Allowed: tag\\(log,"),
        ("search.budget=", "search.budget=: has no value. Next: give one"),
        ("batch_size=", "not an axis of a search"),
        ("gpus=[0,1],[2,3]", "not an axis of a search"),
        ("gpus=auto,1", "auto is not a whole number.* Allowed as an axis: whole numbers. Next: .* gpus=1,2"),
        ("gpus=1,2.0", "2.0 is not a whole number"),
        ("seed=1,2", "seed cannot be an axis of a search"),
        ("model=ssd,vgg", "model cannot be an axis of a search"),
        ("search.budget=1h,2h", "search.budget cannot be an axis"),
        ("batch_size=glob(*)", "not an axis of a search"),
    ],
)
def test_what_is_no_axis_is_refused_by_name(word: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        axis(word)
    assert word in str(refused.value)


# An axis has to change the training, and to leave the question as it is.
AXES = {
    "batch_size", "global_batch_size", "gpus", "nodes", "cpu_processes", "compile", "strategy", "overlap_grad_reduce",
    "dataset.decode", "dataset.num_threads", "precision.trainer", "precision.tf32",
    "program.command", "program.launch", "program.cwd",
    "model.batch_size", "model.global_batch", "model.by_gpus", "model.hparams", "model.optimizer.lr",
    "model.optimizer.lr_scaling", "model.optimizer.base_batch_size", "model.optimizer.weight_decay",
    "stack.kind", "stack.python", "stack.torch", "stack.requirements", "stack.overrides", "stack.index",
    "stack.exclude_newer", "stack.env", "stack.container.engine", "stack.container.image", "stack.container.mounts",
    "stack.container.shm", "stack.container.user", "stack.container.options",
}  # fmt: skip


def test_every_option_is_an_axis_or_is_refused_as_one() -> None:
    """A new option must be put on one side: one that changes no training would make a search of equal settings."""
    accepted = set()
    for key in refusal.options():
        with contextlib.suppress(ConfigError):
            axis_of(f"{key}=1,2", key, None, [1, 2])
            accepted.add(key)
    assert accepted == AXES


TEXTS = st.text("aé'\\ =,{", min_size=1)
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)


@given(st.dictionaries(st.sampled_from(["a", "b.c", "d"]), VALUES, min_size=1))  # fmt: skip
def test_a_setting_is_typed_as_hydra_reads_it(setting: dict[str, Any]) -> None:
    parser = OverridesParser.create()
    read = [parser.parse_override(word) for word in setting_overrides(setting)]
    values = {override.key_or_group: getattr(override.value(), "text", override.value()) for override in read}
    assert values == setting


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("90s", 90, "seconds"), ("30min", 1800, "seconds"), ("1.5h", 5400, "seconds"), ("40runs", 40, "runs"),
        ("2gpu-hours", 2, "gpu-hours"), ("5usd", 5, "usd"), (" 5 usd ", 5, "usd"),
    ],
)  # fmt: skip
def test_a_budget_is_a_number_with_its_unit(text: str, amount: float, unit: str) -> None:
    budget = budget_of(SearchConfig(budget=text))
    assert (budget.amount, budget.unit) == (amount, unit)


def test_a_run_takes_of_a_budget_what_it_uses() -> None:
    config = dataclasses.replace(RunConfig(), gpus=4, nodes=2)
    config.instance.price_per_hour = 3.0
    budgets = [budget_of(SearchConfig(budget=text)) for text in ("1h", "1gpu-hours", "1usd", "1runs")]
    assert [budget.used_by(config, 1800) for budget in budgets] == [1800, 4.0, 3.0, 1.0]


@pytest.mark.parametrize("word", ["time,cost", "[time,cost]", "time", '"time,cost"'])
def test_objectives_are_typed_with_a_comma(word: str) -> None:
    spelled = hydra_argument(f"search.objective={word}")
    assert not launch.axes_of(["search=quickest", spelled]), "no sweep"
    config = composed([*SEARCH, spelled])
    assert objectives_of(config.search) == (("time",) if word == "time" else ("time", "cost"))


@pytest.mark.parametrize("word", ["precision=16", "stack=1.5", "dataset=true"])
def test_a_choice_that_looks_like_a_number_is_a_name(word: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed([hydra_argument(word)])
    assert re.match(f"refused: {word}: no such choice.* Allowed: ", refusal.explain(refused.value))
    assert hydra_argument("+precision=fp32,16") == '+precision=fp32,"16"'


def test_a_key_that_a_search_adds_is_refused() -> None:
    with pytest.raises(ConfigError, match="nonsense: no such option"):
        launch.composed(launch.Request(), ["+nonsense=1"])


def test_a_price_of_a_gpu_is_paid_for_each_gpu_that_a_run_uses() -> None:
    words = [*SEARCH, "precision=bf16", "price_per_gpu_hour=4", "search.objective=cost"]
    prices = [
        checks.check_job(composed([*words, f"gpus={gpus}"]), [*words, f"gpus={gpus}"], [], EIGHT_GPUS).instance
        for gpus in (1, 4)
    ]
    assert [(price.price_per_hour, price.source) for price in prices] == [
        (4.0, "price_per_gpu_hour"), (16.0, "price_per_gpu_hour"),
    ]  # fmt: skip
    for more, said in (("gpus=0", "gpus=0 uses no GPU"), ("price_per_hour=3", "price_per_hour=3.0 is given too")):
        given_words = ["model=vgg", "dataset=digits", "gpus=1", "price_per_gpu_hour=4", more]
        with pytest.raises(ConfigError, match=f"price_per_gpu_hour=4.0: {said}"):
            checks.check_job(composed(given_words), given_words, [], EIGHT_GPUS)


@pytest.mark.parametrize("text", ["", "30", "min", "-1min", "0h", "1 day", "1e3s", "nanh", "9" * 400 + "runs"])
def test_a_budget_without_its_unit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="30min, 2h, 2gpu-hours, 5usd"):
        budget_of(SearchConfig(budget=text))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["search.objective=speed"],
            "search.objective=speed: .*Allowed: time, cost, energy, or two of them, as time,cost",
        ),
        (['search.objective="time,speed"'], "search.objective=time,speed: .*Allowed: time, cost, energy"),
        (['search.objective="time,time"'], "search.objective=time,time: .*Allowed: time, cost, energy, or two of them"),
        (['search.objective="time,cost,energy"'], "Allowed: time, cost, energy, or two of them, as time,cost"),
        (['search.objective="time,cost"'], "search.objective=time,cost: the price is not known"),
        (['search.objective="time,energy"'], "search.objective=time,energy: gpus=0, .* give gpus, or"),
        (["search.objective=cost"], "the price is not known. Next: give price_per_hour"),
        (["search.objective=energy"], "gpus=0, .*give gpus"),
        (["search.budget=1gpu-hours"], "gpus=0 uses no GPU-hours"),
        (["search.budget=3usd"], "3usd: the price is not known.* or beside sweep.resume, .* a budget in min or"),
        (["search.max_finalists=0"], "Allowed: 1 to 8"),
        (["stop_at_target=false"], "stop_at_target=false"),
        (["search.cap_sec=3"], "search.cap_sec: is set by the search itself"),
        (["model=resnet50", "dataset=synthetic"], "has no target on dataset=synthetic. Next: give target=VALUE"),
        (
            ["search=none", "sweep.until_decided=true", "search.source=earlier"],
            "search.from=earlier: sweep.until_decided",
        ),
        (["search.budget=0.5runs"], "search.budget=0.5runs: not a whole number of runs. Next: give 1runs or more"),
        (["search=none", "search.budget=2h"], "search.budget=2h: has no effect without a search"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(more: list[str], words: str) -> None:
    given_words = [*SEARCH, *more]
    with pytest.raises(ConfigError, match=words):
        checks.check_job(composed(given_words), given_words, [], [])


@pytest.mark.parametrize("objective", ["energy", "time,energy"])
def test_a_search_for_energy_needs_a_counter_on_each_gpu_of_this_machine(objective: str) -> None:
    words = [*SEARCH, f'search.objective="{objective}"', "gpus=2"]
    mig = Gpu(1, "NVIDIA H200 MIG 3g.71gb", "MIG-1", 70 * 2**30, 9.0, energy_counter=False)
    known = [dataclasses.replace(gpu, energy_counter=True) for gpu in EIGHT_GPUS]
    checks.check_job(composed(words), words, [], EIGHT_GPUS)  # of an unknown driver
    checks.check_job(composed(words), words, [], [*known[:2], mig])
    with pytest.raises(ConfigError, match=rf"objective={objective}: GPU 1 \(NVIDIA H200 MIG 3g.71gb\) has no energy"):
        checks.check_job(composed(words), words, [], [known[0], mig, known[1]])
    elsewhere = [*words, "cluster=slurm"]
    checks.check_job(composed(elsewhere), elsewhere, [], [known[0], mig])


def test_without_an_axis_the_batch_and_the_learning_rate_are_searched_around_the_models_own() -> None:
    config = checks.check_job(composed([*SEARCH]), SEARCH, [], EIGHT_GPUS)
    words = default_axes(config)
    assert words == ["batch_size=16,32,64,128", "model.optimizer.lr=tag(log,interval(0.00025,0.004))"]
    [batches, rates] = map(axis, words)
    assert config.device_batch_size() in batches["choices"]
    assert rates["low"] < config.model.optimizer.lr < rates["high"]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ("batch_size=16", ["model.optimizer.lr"]), ("global_batch_size=64", ["model.optimizer.lr"]),
        ("model.optimizer.lr=0.01", ["batch_size"]), ("precision=bf16", ["batch_size", "model.optimizer.lr"]),
    ],
)  # fmt: skip
def test_without_an_axis_what_is_given_stays_as_it_is_given(given: str, keys: list[str]) -> None:
    words = [*SEARCH, given]
    config = checks.check_job(composed(words), words, [], EIGHT_GPUS)
    assert [axis(word)["key"] for word in default_axes(config, words)] == keys


def test_the_batches_of_a_model_with_groups_keep_them_whole() -> None:
    config = composed(["search=quickest", "model=ncf", "dataset=ratings"])
    assert all(batch % config.model.group_size == 0 for batch in axis(default_axes(config)[0])["choices"])


GPT = ["model=gpt", "recipe=gpt_cpu"]  # 4,096 tokens a step, in sequences of 64


@pytest.mark.parametrize("devices", [1, 2])
def test_a_batch_of_all_devices_stays_one_on_whatever_number_is_searched(devices: int) -> None:
    given = [*GPT, "gpus=0", f"cpu_processes={devices}", "search=quickest"]
    words = default_axes(checks.check_job(composed(given), given, [], []))
    assert words[0] == "global_batch_size=1024,2048,4096,8192"


def test_default_axes_surround_the_batch_that_was_given_and_each_of_their_jobs_composes() -> None:
    given = [*GPT, "gpus=0", "search=quickest", "model.batch_size=2048"]
    axis = default_axes(checks.check_job(composed(given), given, [], []), given)[0]
    assert axis == "global_batch_size=512,1024,2048,4096"
    for size in axis.partition("=")[2].split(","):
        words = [*given, f"global_batch_size={size}"]
        assert checks.check_job(composed(words), words, ["global_batch_size"], []).samples_per_step() == int(size)


def test_a_devices_batch_of_a_model_that_has_one_of_all_devices_is_refused() -> None:
    given = [*GPT, "gpus=4", "batch_size=4096"]
    with pytest.raises(
        ConfigError, match=r"batch_size=4096: is the size on one device, .* give global_batch_size=4096"
    ):
        checks.check_job(composed(given), given, [], EIGHT_GPUS)
    checked = checks.check_run(composed([*GPT, "gpus=4"]), EIGHT_GPUS)
    assert checks.check_run(checked, EIGHT_GPUS) == checked, "a run that goes on has a device's by then"


@pytest.mark.parametrize(
    ("given", "key", "near"),
    [
        (["gpus=3"], "model.batch_size=4096", 4032),
        (["gpus=3", "model.hparams.micro_batch_size=256"], "model.batch_size=4096", 3840),
        (["gpus=3", "global_batch_size=3000"], "global_batch_size=3000", 2880),
        (["gpus=2", "global_batch_size=64"], "global_batch_size=64", 128),
        (["gpus=1", "global_batch_size=100"], "global_batch_size=100", 64),
    ],
)
def test_the_batch_of_all_devices_that_is_named_can_be_shared(given: list[str], key: str, near: int) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: not a multiple of . devices x sequences of 64.* as {near}$"):
        checks.check_run(composed([*GPT, *given]), EIGHT_GPUS)
    fits = [word for word in given if not word.startswith("global_batch_size")]
    config = checks.check_run(composed([*GPT, *fits, f"global_batch_size={near}"]), EIGHT_GPUS)
    assert config.samples_per_step() == near


@pytest.mark.parametrize(("gpus", "batch"), [(1, 64), (2, 32), (4, 16)])
def test_a_global_batch_is_shared_by_the_devices(gpus: int, batch: int) -> None:
    given = ["model=vgg", "dataset=digits", f"gpus={gpus}"]
    config = checks.check_run(composed([*given, "global_batch_size=64"]), EIGHT_GPUS)
    assert (config.device_batch_size(), config.samples_per_step()) == (batch, 64)
    asked = checks.check_run(composed([*given, f"batch_size={batch}"]), EIGHT_GPUS)
    assert config.config_hash() == asked.config_hash(), "the same run, however it was asked for"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gpus=3", "global_batch_size=64"], "global_batch_size=64: not a multiple of 3 devices.*such as 63"),
        (["gpus=2", "global_batch_size=0"], "global_batch_size=0: not a multiple of 2 devices.*such as 2"),
        (["global_batch_size=64", "batch_size=8"], "global_batch_size=64: batch_size=8 is given too"),
        (["gpus=2", "model=ncf", "dataset=ratings", "global_batch_size=7"], "of 2 devices x groups of"),
    ],
)
def test_a_global_batch_that_cannot_be_shared_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checks.check_run(composed(["model=vgg", "dataset=digits", *given]), EIGHT_GPUS)


@pytest.mark.parametrize(
    "key",
    [
        "price_per_hour", "model.targets.digits.accuracy", "program.metrics.x", "limit_train_batches", "warm_up",
        "eval_every_samples", "hydra.run.dir", "timeout_sec", "runs_dir", "trust", "cluster.before", "+hydra.x",
    ],
)  # fmt: skip
def test_what_changes_the_question_or_nothing_measured_is_no_axis(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot be an axis of a search"):
        axis(f"{key}=1,2")


def test_a_quoted_word_stays_a_word_and_a_plus_stays() -> None:
    assert axis("stack.torch='2.10','2.11'")["choices"] == ("2.10", "2.11")
    assert setting_overrides({"stack.torch": "2.10", "a": "true", "b": "1e3"}) == [
        'stack.torch="2.10"',
        'a="true"',
        'b="1e3"',
    ]
    assert axis("+stack.env.X=a,b")["key"] == "+stack.env.X"


@pytest.mark.parametrize("word", ["gpus=range(5,1)", "gpus=range(1,5,0)"])
def test_a_range_without_values_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="gpus=8,16,32"):
        axis(word)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("batch_size=1,", "a value beside a comma is missing. Allowed: batch_size=VALUE,VALUE"),
        ("batch_size=choice()", "Hydra cannot parse these values. Allowed: batch_size=8,16,32"),
        ("lr=interval(0.1)", "Hydra cannot parse these values. .* in a search 'lr=interval"),
        ("lr=interval(a,b)", "Hydra cannot parse these values"),
        ("lr=interval(0.1,1", "Hydra cannot parse these values"),
    ],
)
def test_an_axis_that_hydra_cannot_parse_is_refused_by_name(word: str, words: str) -> None:
    with pytest.raises(HydraException) as refused:
        launch.axes_of(["search=quickest", word])
    said = refusal.explain(refused.value)
    assert said.startswith(f"refused: {word}: ")
    assert re.search(words, said)


@pytest.mark.parametrize("word", ["+search=quickest", "++search=quickest", "search=none", "sweep.until_decided=True"])
def test_axes_are_those_of_what_asks_for_a_search(word: str) -> None:
    assert launch.axes_of([word, "batch_size=1,2", "--config-dir", "/a,b", "gpus=0"]) == ["batch_size=1,2"]
    assert launch.axes_of(["batch_size=1,2"]) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["sweep.shuffle=1"], "sweep.shuffle: has no effect"),
        (["sweep.warm_up=true"], "sweep.warm_up: has no effect"),
        (["checkpoint_every_steps=5"], "measures the time of whole runs"),
        (["search.objective=cost", "price_per_hour=0"], "cost: price_per_hour=0, so each run costs 0 and no cost can"),
        (["search.budget=5usd", "price_per_hour=0"], "budget=5usd: price_per_hour=0, .*Next: give a price above 0, or"),
        (["detach=true", "cluster=slurm", "gpus=0"], "detach=true: "),
    ],
)
def test_what_a_search_does_not_heed_is_refused(more: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checks.check_job(composed([*SEARCH, *more]), [*SEARCH, *more], [], [])


def test_a_search_that_goes_on_may_be_given_another_budget() -> None:
    words = ["sweep.resume=ID", "search.budget=2h"]
    assert checks.check_job(composed(words), words, [], []).search.budget == "2h"


@pytest.mark.parametrize("value", ["true", "True", "yes", "y", "ON", "1", "2", '"true"', "'y'"])
def test_a_sweep_decides_however_true_is_written(value: str) -> None:
    word = f"sweep.until_decided={value}"
    assert composed([word]).sweep.until_decided
    assert launch.axes_of(["-m", word, "batch_size=8,16"]) == ["batch_size=8,16"]


@pytest.mark.parametrize("value", ["false", "no", "0", '"false"'])
def test_a_sweep_does_not_decide_where_it_is_told_not_to(value: str) -> None:
    assert launch.axes_of(["-m", f"sweep.until_decided={value}", "batch_size=8,16"]) == []
