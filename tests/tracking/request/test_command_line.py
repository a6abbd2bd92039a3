"""The words of launch.py's command line: what they mean to Hydra, and what is refused before it composes them."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.errors import HydraException

import launch
from conf.schema import ConfigError
from tests.support import commands
from tests.support.composing import composed
from tracking.base.event_stream import EventStream
from tracking.request import checks, refusal
from tracking.request.command_line import choices
from tracking.request.command_line.arguments import hydra_arguments, sizes
from tracking.request.command_line.choices import group_names


def refusal_of(*words: str) -> str:
    with pytest.raises(ConfigError) as refused:
        hydra_arguments(words)
    return str(refused.value)


@pytest.mark.parametrize("group", group_names())
@pytest.mark.parametrize("value", ["[{name}]", "null", "", "{name},null"])
def test_a_group_takes_a_name_alone(group: str, value: str) -> None:
    word = f"{group}={value.replace('{name}', 'vgg')}"
    if group == "recipe" and "[" in value:
        assert hydra_arguments([word]) == [word]
        return
    said = refusal_of(word)
    assert said.startswith(f"{word}: not the name of a {group}. Allowed: ")
    allowed, _, example = said.partition("Allowed: ")[2].partition(f". Next: give one, as {group}=")
    assert example.partition(",")[0] in allowed.split(", ")


def test_a_table_holds_options_of_a_group_that_has_some() -> None:
    assert composed(hydra_arguments(["model={batch_size:8}"])).model.batch_size == 8


@pytest.mark.parametrize(
    ("line", "words"),
    [("torch: 2.10", 'torch: "2.1"'), ("expect: {cudnn: 9.10}", 'cudnn: "9.1"'), ('torch: "2.10"', "")],
)
def test_a_number_in_a_stack_s_file_is_refused_with_how_to_quote_it(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/mine.yaml").write_text(f"kind: uv\n{line}\n")
    source = SimpleNamespace(provider="command-line", path=str(tmp_path))
    message = choices.number_in_stack([source], "mine")
    assert (f"in quotes, as in {words}" in str(message)) if words else message is None


def test_a_version_of_a_stack_stays_as_it_was_typed() -> None:
    """As a number, 2.10 is 2.1."""
    words = ["stack.torch=2.10", "stack.python=3.10", "+stack.expect.cudnn=9.10", "+stack.env={A: 1.10, B: 1e3x}"]
    stack = composed(hydra_arguments(words)).stack
    assert (stack.torch, stack.python, stack.expect) == ("2.10", "3.10", {"cudnn": "9.10"})
    assert stack.env == {"A": "1.10", "B": "1e3x"}
    assert composed(hydra_arguments(["stack.torch=2.11.0"])).stack.torch == "2.11.0"
    assert hydra_arguments(["stack.torch=2.9,2.10"]) == ['stack.torch="2.9","2.10"']
    assert hydra_arguments(["stack.torch='2.10'"]) == ["stack.torch='2.10'"]
    for group in ("recipe", "closed", "target_set"):
        assert refusal_of(f"{group}={{a:1}}").startswith(f"{group}={{a:1}}: not the name of a {group}.")


@pytest.mark.parametrize(
    "words",
    [
        ["gpus=1", "gpus=2"],
        ["-m", "seed=1", "seed=1,2"],
        ["+stack.env.A=1", "++stack.env.A=2"],
        ["profile=true", "profile.steps=5"],
        ["+search=quickest", "search=none"],
        ["size=1b", "size=8b", "model=llama"],
        ["recipe=gpt_cpu", "model=gpt", "recipe=gpt_tokens"],
    ],
)
def test_two_values_of_an_option_are_refused_with_both(words: list[str]) -> None:
    key = words[-1].partition("=")[0]
    first, second, *_ = [word for word in words if word[0] != "-" and not word.startswith("model")]
    assert refusal_of(*words).startswith(f"{first} {second}: contradict each other. Next: give one of them"), key


@pytest.mark.parametrize("word", ["gpus", "a b=1", "=1", "2", "python", "train.py", "+"])
def test_a_word_that_is_no_option_is_refused(word: str) -> None:
    said = refusal_of("seed=1", word)
    assert said.startswith(f"{word}: not an option. Allowed: NAME=VALUE")
    assert ("model=program" in said) == (word in ("python", "train.py"))


@pytest.mark.parametrize(
    "words", [["--config-dir="], ["--config-dir", "a", "-cd", "b"], ["--config-dir=a", "-cd", "b"]]
)
def test_folders_of_yaml_other_than_one_are_refused(words: list[str]) -> None:
    assert "not one folder. Next: " in refusal_of(*words)
    assert hydra_arguments(["--config-dir", "a=b", "--cfg", "job", "~recipe"])[-1] == "~recipe"


def test_a_group_that_a_run_needs_cannot_be_removed() -> None:
    assert refusal_of("~model").startswith("~model: a run needs a model. Next: give another one, as model=NAME")
    assert hydra_arguments(["~closed", "~seed"]) == ["~closed", "~seed"]


def test_a_value_may_be_given_twice_and_tables_are_merged() -> None:
    words = ["gpus=1", "gpus=1", "--config-dir", "gpus=2", "+program.metrics={a: b}", "+program.metrics={c: d}"]
    assert hydra_arguments(words) == words


def test_a_size_is_a_recipe_of_the_model() -> None:
    given = ["model=gpt", "size=1.5b", "gpus=2"]
    assert hydra_arguments(given) == ["model=gpt", "recipe=gpt_1.5b", "gpus=2"]
    assert hydra_arguments(["model=llama", "size=1b,8b", "-m"]) == ["-m", "model=llama", "recipe=llama_1b,llama_8b"]
    assert hydra_arguments([*given, "--config-dir=own", "size=1.5b"])[1] == "recipe=gpt_1.5b"
    assert composed(["model=gpt", "recipe=gpt_1.5b"]).model.hparams["layers"] == 48


@pytest.mark.parametrize(
    ("words", "why", "example"),
    [
        (["size=8b"], "size=8b: is the size of one model, which is not given", "model=llama size=8b"),
        (["size=774m", "model=llama,gpt"], "size=774m: is the size of one model", "model=gpt size=774m"),
        (["size=8b", "model=vgg"], "size=8b: model=vgg has no such size", "model=llama size=8b"),
        (["size=1b,8b"], "size=1b,8b: is the size of one model", "-m model=llama size=1b,8b"),
        (["size=9b", "model=gpt"], "size=9b: model=gpt has no such size", "model=gpt size=124m"),
    ],
)
def test_a_size_without_its_model_is_refused_with_all_sizes(words: list[str], why: str, example: str) -> None:
    said = refusal_of(*words)
    assert said.startswith(why)
    assert "Allowed: model=gpt size=124m, 355m, 774m, 1.5b; model=llama size=1b, 8b, 70b. Next: " in said
    assert said.endswith(f" {example}")


def test_a_size_beside_another_recipe_is_refused_with_the_list_of_both() -> None:
    said = refusal_of("model=gpt", "size=124m", "recipe=gpt_grammar")
    assert said.startswith("size=124m recipe=gpt_grammar: contradict each other")
    assert "recipe=[gpt_grammar,gpt_124m], where the later one overrides the earlier" in said
    assert hydra_arguments(["model=gpt", "size=124m", "recipe=gpt_124m"])[1] == "recipe=gpt_124m"


@pytest.mark.parametrize(("model", "size"), [(model, size) for model, known in sizes().items() for size in known])
def test_a_size_behind_another_recipe_has_its_own_shape(model: str, size: str) -> None:
    alone, both = (
        composed([f"model={model}", recipe])
        for recipe in (f"recipe={model}_{size}", f"recipe=[{model}_cpu,{model}_{size}]")
    )
    for key in ("layers", "width", "heads", "hidden", "kv_heads", "activation_checkpointing"):
        assert both.model.hparams[key] == alone.model.hparams[key], key
    assert both.dataset.train_tokens == 819200


@pytest.mark.parametrize("word", ["model.hparams.width=32", "~recipe", "+model.hparams.a=1", "profile=true"])
def test_what_a_resumed_run_keeps_is_refused_whatever_model_has_it(word: str) -> None:
    for resumed in ("resume=runs/a", "sweep.resume=a"):
        said = refusal_of(resumed, "timeout_sec=5", word)
        assert said.startswith(f"{resumed} {word}: ")
        assert "Allowed beside " in said
        assert "timeout_sec" in said


@pytest.mark.parametrize(
    "words",
    [
        ["sweep.until_decided=true"],
        ["-m", "seed=4", "sweep.until_decided=true"],
        ["sweep.shuffle=3"],
        ["-m", "seed=4", "sweep.shuffle=3"],
        ["sweep.paired=true"],
    ],
)
def test_what_a_resumed_sweep_has_decided_at_its_beginning_is_refused(words: list[str]) -> None:
    said = refusal_of("sweep.resume=a", *words)
    assert said.startswith(
        f"sweep.resume=a {words[-1]}: has no effect, since a resumed sweep keeps its own. Next: leave"
    )
    hydra_arguments(["-m", "seed=4", "sweep.resume=a", "sweep.paired=true"])


def parsed_ranges(*words: str) -> dict[str, Any]:
    return {word: launch.parsed(word).value() for word in words}


@pytest.mark.parametrize("words", [["a=range(1,9000000)"], ["a=shuffle(range(1,201))", "b=1,2", "c=range(101,1,-1)"]])
def test_ranges_of_too_many_values_are_refused_before_they_are_listed(words: list[str]) -> None:
    choices.check_ranges(parsed_ranges("seed=range(0,10000)"), is_search=False)
    with pytest.raises(ConfigError, match=r"^a=.*range\(1,.*Allowed: up to 10,000. Next: give a larger step"):
        choices.check_ranges(parsed_ranges(*words), is_search=False)


@pytest.mark.parametrize("values", ["0.01,0.001,0", "1,10,nan", "nan,3", "1,inf"])
@pytest.mark.parametrize("is_search", [False, True])
def test_a_range_that_never_ends_is_refused_by_its_own_words(values: str, is_search: bool) -> None:
    word = f"model.optimizer.lr=range({values})"
    with pytest.raises(ConfigError, match=rf"^{re.escape(word)}: its step is .*other than 0. Next: give"):
        choices.check_ranges(parsed_ranges(word), is_search=is_search)


def test_a_search_draws_from_each_range_alone() -> None:
    choices.check_ranges(parsed_ranges("a=range(8,512,8)", "b=range(1,1000)"), is_search=True)
    with pytest.raises(ConfigError, match=r"^b=range\(1,90000\): gives 89,999 values"):
        choices.check_ranges(parsed_ranges("a=range(8,512,8)", "b=range(1,90000)"), is_search=True)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("seed=1,2", "Next: -m seed=1,2 for a sweep. "),
        ("model=vgg,ssd", "Next: -m model=vgg,ssd for a sweep. "),
        ("gpus=0,1", "Next: -m gpus=0,1 for a sweep, or gpus=[0,1] for a list. "),
        ("eval_at_epochs=1,2", "or eval_at_epochs=[1,2] for a list. "),
        ("runs_dir=/a,b", "Next: -m runs_dir=/a,b for a sweep, or 'runs_dir=\"/a,b\"' for a text with commas. "),
    ],
)
def test_commas_without_a_sweep_are_refused_with_what_the_option_takes(word: str, advice: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed([word])
    said = refusal.explain(refused.value)
    assert said.startswith(f"refused: {word}: has several values. ")
    assert advice in said


def test_a_quote_that_is_not_closed_is_refused_by_name() -> None:
    with pytest.raises(HydraException) as refused:
        composed(['alert.command="x'])
    assert refusal.explain(refused.value).startswith('refused: alert.command="x: Hydra cannot parse this. Next: close')


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=gpt", "model.hparams.hidden=1e308"], "model.hparams.hidden=1e+308: too large a number. Allowed"),
        (["max_epochs=9223372036854775808"], "max_epochs=9223372036854775808: too large a number. Allowed: up to 922"),
        (["model.hparams.epochs=[1,99999999999999999999]"], "model.hparams.epochs.1=99999999999999999999: too large"),
        (["model.optimizer.lr=1e999"], "model.optimizer.lr=inf: must be a finite number"),
        (["model.optimizer.weight_decay=-0.1"], "model.optimizer.weight_decay=-0.1: must be 0 or more"),
        (["gpus=0", "cpu_processes=100000"], "cpu_processes=100000: too many for the "),
    ],
)
def test_a_number_that_no_run_could_have_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checks.check_run(composed(words), [])
    assert str(refused.value).startswith(said)
    checks.check_run(composed(["max_epochs=9223372036854775807"]), [])


MODE = "# @package _global_\nhydra:\n  mode: MULTIRUN\n"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["option", "config-dir", "study"])
def test_hydras_mode_is_taken_from_where_a_user_sets_it(source: str, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/mine.yaml").write_text(MODE)
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/mine.yaml").write_text(MODE)
    words = {
        "option": ["hydra.mode=MULTIRUN"],
        "config-dir": ["--config-dir", str(tmp_path), "recipe=mine"],
        "study": [f"hydra.searchpath=[file://{tmp_path}]", "+study=mine"],
    }[source]
    launched = commands.launch(tmp_path, *words, "gpus=0", "seed=1,2", "dry_run=true")
    assert launched.output.count("of 2: ") == 2, launched.output


OURS = ["--config-dir", str(commands.ROOT / "tests/workloads/conf")]


@pytest.mark.parametrize(
    "words", [["model=vgg", "seed=1"], ["-m", "seed=1,2"], ["+search=quickest", "seed=1"], [*OURS, "model=tiny"]]
)
def test_a_job_is_composed_once(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["launch.py", *hydra_arguments(words)])
    composed_for: list[object] = []
    load = ConfigLoaderImpl.load_configuration

    def noted(*args: Any, **named: Any) -> object:
        composed_for.append(named["run_mode"])
        return load(*args, **named)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", noted)
    monkeypatch.setattr(Hydra, "get_mode", Hydra.get_mode)
    launch.prepare_hydra()
    jobs = launch.collect(EventStream()).jobs
    assert len(jobs) == (2 if "-m" in words else 1)
    assert len(composed_for) == len(jobs) + (words[0] == "-m"), composed_for  # A sweep has a configuration of its own.


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_a_declared_option_has_one_name_whatever_is_before_it(plus: str) -> None:
    plain = [f"{plus}{word}" for word in ("gpus=1,2", "seed=3", "sweep.jobs_at_once=2", "sweep.until_decided=true")]
    assert hydra_arguments(plain) == [word.lstrip("+") for word in plain]
    others = [f"{plus}{word}" for word in ("search.from=a", "profile=true", "search=quickest")]
    assert hydra_arguments(others) == ["search.source=a", "profile.steps=20", "search=quickest"]


def test_a_new_option_and_one_of_a_table_keep_their_plus() -> None:
    words = ["+model.hparams.width=3", "++model.hparams.depth=4", '+program.metrics={a: "(x)"}', "+study=cpu"]
    assert hydra_arguments(words) == words
    assert "contradict each other" in refusal_of("++seed=1", "seed=2")


@pytest.mark.parametrize("words", [["--nope"], ["--cfg"], ["--info=all", "--nope", "seed=1"]])
def test_a_wrong_flag_is_a_refusal_in_words(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ahead", nullcontext)
    monkeypatch.setattr(sys, "argv", ["launch.py", *words])
    code, said = launch.compose_and_launch(EventStream())
    flags = " ".join(word for word in words if word.startswith("-"))
    assert (code, said) == (2, f"refused: {flags}: an unknown flag, or one without its value. {refusal.HELP}")


@pytest.mark.parametrize("folder", ["runs", "other", "a b", "x=1,'y'"])
def test_a_printed_command_continues_a_sweep_where_its_folder_is(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = shlex.split(refusal.resuming(tmp_path / folder / "20261129-a"))
    assert first == "sweep.resume=20261129-a"
    values = {launch.parsed(word).key_or_group: launch.parsed(word).value() for word in others}
    places = {key: Path(str(value)).resolve() for key, value in values.items()}
    assert places == ({} if folder == "runs" else {"runs_dir": tmp_path / folder})
