"""Every YAML composes, passes the checks and binds to the code that it names."""

from __future__ import annotations

import dataclasses
import errno
import functools
import inspect
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.errors import HydraException
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf.errors import OmegaConfBaseException

from conf.dataset_options import DatasetConfig
from conf.launch_options import InstanceConfig, TrackingConfig
from conf.schema import ConfigError, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig, StackConfig
from tests.support.composing import EIGHT_GPUS, ROOT, composed
from tracking.request import checks, refusal, stored_config
from trainers.data.digits import digits
from trainers.loop.batch_size import group_size
from trainers.loop.build import make_data, make_module
from trainers.workload import TrialModule, load_workload

GROUPS = ("dataset", "precision", "stack", "instance")
# A program is no workload, and nothing before it has a command (tests/tracking/request/test_program_options.py).
MODELS = sorted(path.stem for path in (ROOT / "conf/model").glob("*.yaml") if path.stem != "program")
RECIPES = sorted(path.stem for path in (ROOT / "conf/recipe").glob("*.yaml"))
CHOICES = [(path.parent.name, path.stem) for group in GROUPS for path in sorted((ROOT / "conf" / group).glob("*.yaml"))]


@functools.cache
def yaml_of(model: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / f"conf/model/{model}.yaml").read_text())
    return content


def targets_of(model: str) -> list[str]:
    return list(yaml_of(model)["targets"])


def overrides(model: str, group: str = "dataset", choice: str = "") -> list[str]:
    """Overrides that train `model` on a dataset of its own, or with this choice. The same ones are composed once."""
    chosen = {"dataset": targets_of(model)[0]} | ({group: choice} if choice else {})
    return [f"model={model}", *(f"{key}={value}" for key, value in chosen.items())]


# A stack and an instance know nothing of the model, and of the precisions fp8 alone asks what it can do.
ASKING = ("dataset", "fp8")
COMPOSED = [
    pytest.param(model, group, choice, marks=[pytest.mark.exhaustive] * (index > 0 and not {group, choice} & {*ASKING}))
    for group, choice in CHOICES
    for index, model in enumerate(MODELS)
]


@pytest.mark.parametrize(("model", "group", "choice"), COMPOSED)
def test_every_choice_composes_with_every_model_and_passes_the_checks(model: str, group: str, choice: str) -> None:
    if group == "dataset" and choice not in targets_of(model):
        pytest.skip(f"{model} is not trained on {choice}")
    if choice == "fp8" and not yaml_of(model).get("fp8"):
        pytest.skip(f"{model} has no layers for it")
    config = composed(overrides(model, group, choice))
    assert getattr(config, group).name == choice  # the name that runs are found by is the file's
    assert checks.check_run(config, EIGHT_GPUS).gpus == 1
    if not config.precision.needs_gpu:
        assert checks.check_run(config, []).gpus == 0


@pytest.mark.parametrize("model", MODELS)
def test_a_model_binds_to_its_workload(model: str) -> None:
    config = checks.check_run(composed(overrides(model)), [])
    workload = load_workload(config)
    assert config.model.name == model
    assert set(config.model.targets) == set(workload.data)
    assert all(set(targets) <= set(config.model.metrics) for targets in config.model.targets.values())
    given = {"data": None, "learning_rate": config.learning_rate(), "weight_decay": 0.0}
    inspect.signature(workload.module).bind(**given, **config.model.hparams)


@pytest.mark.parametrize("model", MODELS)
def test_a_models_yaml_says_whether_it_can_be_exported(model: str) -> None:
    config = composed(overrides(model))
    predicts = getattr(load_workload(config).module, "predictor", None)
    assert config.model.exportable == (predicts is not TrialModule.predictor)
    plain = config.config_hash()
    config.model.exportable = not config.model.exportable
    assert config.config_hash() == plain  # of what is measured, which is the same


@pytest.mark.parametrize("model", MODELS)
def test_a_models_yaml_says_how_many_samples_are_never_parted(model: str) -> None:
    config = composed(overrides(model))
    makers = load_workload(config).data
    data = next(makers[name]() for name in ("synthetic", "digits", "selfplay") if name in makers)
    assert config.model.group_size == group_size(data)
    plain = config.config_hash()
    config.model.group_size += 1
    assert config.config_hash() == plain  # of what is measured, which is the same


@pytest.mark.parametrize(("model", "dataset"), [(model, name) for model in MODELS for name in targets_of(model)])
def test_a_datasets_options_bind_to_its_factory(model: str, dataset: str) -> None:
    config = composed(overrides(model, "dataset", dataset))
    given = {key: value for key, value in vars(config.dataset).items() if key != "name" and value is not None}
    inspect.signature(load_workload(config).data[dataset]).bind(**given)


@pytest.mark.parametrize(("scaling", "rate"), [("linear", 0.08), ("sqrt", 0.02)])
def test_the_learning_rate_follows_the_global_batch(scaling: str, rate: float) -> None:
    optimizer = ("lr=0.005", f"lr_scaling={scaling}", "base_batch_size=64")
    config = composed(["gpus=8", "batch_size=128", *(f"model.optimizer.{key}" for key in optimizer)])
    assert config.learning_rate() == pytest.approx(rate)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_binds_to_the_model_it_is_named_after(recipe: str) -> None:
    model, _, dataset = recipe.partition("_")
    chosen = (
        [f"dataset={dataset}"] if ("dataset", dataset) in CHOICES else [f"recipe={recipe}"]
    )  # of a size, or for a CPU
    config = checks.check_run(composed([f"model={model}", *chosen]), [])
    plain = checks.check_run(composed([f"model={model}", f"dataset={config.dataset.name}", "~recipe"]), [])
    assert config.model != plain.model
    assert config.model.hparams.keys() == plain.model.hparams.keys()  # it changes options and adds none
    if model != "minigo":  # Its recipes play other opponents, on whom their targets are.
        assert set(config.targets()) == set(plain.targets())


def test_a_misspelt_hyperparameter_is_refused_with_those_that_there_are() -> None:
    config = composed(["+model.hparams.epoch=3"])
    with pytest.raises(ConfigError, match=r"model\.hparams\.epoch: .*augment_epochs"):
        make_module(load_workload(config), digits(), config)


def test_an_option_that_the_dataset_does_not_have_is_refused() -> None:
    config = composed(["dataset.path=data"])
    with pytest.raises(ConfigError, match=r"dataset\.path: digits takes no such option"):
        make_data(load_workload(config), config.dataset)


def test_a_file_that_this_user_may_not_open_is_refused_by_name() -> None:
    def closed() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/ratings.csv")

    config = composed([])
    workload = dataclasses.replace(load_workload(config), data={"digits": closed})
    with pytest.raises(ConfigError, match=r"dataset=digits: /data/ratings.csv cannot be opened .* Next: get access"):
        make_data(workload, config.dataset)


@pytest.mark.parametrize("lacking", [os.R_OK, os.W_OK, os.X_OK])
def test_a_runs_dir_that_this_user_may_not_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacking: int
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path or not mode & lacking)
    with pytest.raises(
        ConfigError, match=f"runs_dir={tmp_path}/a: no access to {tmp_path}, or its .* Next: give a folder"
    ):
        checks.check_run(composed([f"runs_dir={tmp_path}/a"]), [])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("sede=2", ["sede", "Did you mean seed"]),
        ("model.optimizer.learning_rate=1", ["model.optimizer.learning_rate", "model.optimizer.lr"]),
        ("seed=one", ["seed=one: is not of the option's type. Allowed: a whole number. See python"]),
        ("max_epochs=1.5", ["max_epochs=1.5: ", "Allowed: a whole number, or null. "]),
        ("stop_at_target=maybe", ["stop_at_target=maybe: ", "Allowed: true or false. "]),
        ("precision=bf61", ["bf61", "bf16", "fp32"]),
        ("modle=vgg", ["modle", "Did you mean model"]),
        ("presicion=bf16", ["presicion: no such option. Did you mean precision? Next: see python launch.py --help"]),
        ("eval_at_epochs=[1.5]", ["eval_at_epochs=1.5: ", "Allowed: a list of whole numbers. "]),
        ("search.source=[1]", ["refused: search.from=[1]: is not of the option's type. Allowed: a text, or null. "]),
        ("search.tolerance=5", ["search.tolerance: no such option. Did you mean search.objective? Next: "]),
        ("zzz=1", ["zzz: no such option. Allowed: gpus, nodes, "]),
        (
            "target.top2=0.9",
            ["target: target=VALUE is the value of the YAML's target. Next: ", "+model.targets.DATASET.METRIC="],
        ),
        ("model.hparams.epoch=3", ["epoch: no such option; did you mean epochs? Allowed: epochs, "]),
        ("model.targets.digits.loss=1", ["model.targets.digits.loss: is not", "give +model.targets.digits.loss=VALUE"]),
    ],
)
def test_a_wrong_key_or_value_is_explained(override: str, words: list[str]) -> None:
    with pytest.raises((HydraException, OmegaConfBaseException)) as refused:
        composed([override])
    message = refusal.explain(refused.value)
    assert message.startswith("refused: ")
    for word in words:
        assert word in message


def test_every_option_is_of_a_type_that_the_message_can_name() -> None:
    names = {key: stored_config.type_name(hint) for key, hint in refusal.options().items()}
    assert names["gpus"] == "any"
    assert names["model.metrics"] == "dict[str, Any]"
    assert not any("typing" in name or "<" in name for name in names.values())


trackings = st.builds(
    TrackingConfig, uri=st.none() | st.text(), experiment=st.text(), offline=st.booleans(), upload_wait_sec=st.floats(0)
)
configs = st.builds(
    RunConfig,
    gpus=st.integers(0, 8) | st.just("auto"),
    seed=st.integers(0, 2**32 - 1),
    target=st.none() | st.floats(0, 1),
    max_epochs=st.none() | st.integers(1, 100),
    runs_dir=st.text(max_size=20),
    tracking=trackings,
)


@settings(deadline=None, max_examples=30)  # the machine may be busy
@given(configs)
def test_a_config_survives_being_a_dict(config: RunConfig) -> None:
    plain = json.loads(json.dumps(dataclasses.asdict(config)))
    assert stored_config.from_dict(RunConfig, plain) == config


def test_a_config_survives_its_file() -> None:
    config = composed(["precision=bf16", "target=0.5", "+stack.expect.torch=2.11"])
    assert stored_config.parse(stored_config.to_text(config), "config.yaml") == config


@settings(deadline=None)
@given(configs, st.text(), st.booleans(), st.text())
def test_the_hash_is_of_what_is_measured_only(config: RunConfig, uri: str, dry_run: bool, runs_dir: str) -> None:
    elsewhere = dataclasses.replace(config, tracking=TrackingConfig(uri=uri), runs_dir=runs_dir, dry_run=dry_run)
    assert elsewhere.config_hash() == config.config_hash()
    assert dataclasses.replace(config, seed=config.seed + 1).config_hash() != config.config_hash()


def test_newer_options_leave_the_hash_of_older_runs_as_it_was() -> None:
    model = ModelConfig("m", "w", 8, optimizer=OptimizerConfig(0.1))
    precision, stack = PrecisionConfig("fp32", "32"), StackConfig("s")
    config = RunConfig(model, DatasetConfig("d"), precision, stack, InstanceConfig("i"))
    assert config.config_hash() == "ef853078a092"  # before there were language models
    given = dataclasses.replace(config, dataset=DatasetConfig("d", sequence_length=1024))
    assert given.config_hash() != config.config_hash()


def test_a_stored_gpt_config_of_before_llama_is_what_its_words_give_today() -> None:
    stored = json.loads((ROOT / "tests/fixtures/gpt-before-llama.json").read_text())
    before = stored_config.from_dict(RunConfig, stored["config"])
    assert (before.model.fp8, "architecture" in before.model.hparams) == (False, False)
    assert before.config_hash() == composed(stored["words"]).config_hash() == stored["hash"]
    for word in ("clip_norm=1", "activation_checkpointing=true", "architecture=llama"):
        assert composed([*stored["words"], f"model.hparams.{word}"]).config_hash() != stored["hash"]


def test_a_config_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.nmae: no such option\. Allowed: .*name"):
        stored_config.parse("model: {nmae: vgg}\n", "config.yaml")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([0, 0], "gpus=[0,0]: names no GPU, or one twice"),
        ([], "gpus=[]: names no GPU, or one twice"),
        ([0, 9], "gpus=[0,9]: no GPU 9; 8 visible on this machine (0: "),
        (["a"], "gpus=[a]: no GPU a;"),
        ([True], "gpus=[True]: no GPU True;"),
        (1.5, "gpus=1.5: 8 visible"),
    ],
)
def test_gpus_that_are_not_there_are_refused(asked: object, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checks.check_run(composed([f"gpus={asked}".replace("'", "")]), EIGHT_GPUS)
    assert words in str(refused.value)


def test_gpus_by_index_are_those_in_this_order() -> None:
    config = checks.check_run(composed(["gpus=[4,0]", "precision=bf16"]), EIGHT_GPUS)
    assert (config.gpus, config.num_gpus(), config.world_size()) == ([4, 0], 2, 2)
    assert [gpu.index for gpu in config.chosen(EIGHT_GPUS)] == [4, 0]
    assert stored_config.parse(stored_config.to_text(config), "config.yaml") == config
    other = checks.check_run(composed(["gpus=2", "precision=bf16"]), EIGHT_GPUS)
    assert [gpu.index for gpu in other.chosen(EIGHT_GPUS)] == [0, 1]
    assert config.config_hash() != other.config_hash()


def test_which_gpus_a_cluster_gives_is_not_asked_for() -> None:
    with pytest.raises(ConfigError, match="the GPUs of a cluster's nodes are not known here"):
        checks.check_run(composed(["cluster=slurm", "gpus=[0,1]"]), [])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["profile.steps=-1"], "profile.steps=-1: must be 0"),
        (["profile.steps=3", "profile.trace_megabytes=0"], "profile.trace_megabytes=0: must be above 0"),
        (["profile.seed=1"], "profile.seed=1: has no effect without profile=true"),
        (["profile.trace_megabytes=50"], "profile.trace_megabytes=50.0: has no effect without profile=true"),
        (["model=program", "program.command=true", "profile.steps=3"], "the steps of a program are not known"),
    ],
)
def test_what_cannot_be_traced_is_refused(asked: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checks.check_run(composed(asked), [])
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["gpus=1"], "strategy=fsdp: shards a model over several processes, but this run has one. Next: give gpus=2"),
        (["gpus=0"], r"\(cpu_processes=2 on a CPU\), or strategy=ddp"),
        (["gpus=2", "precision=fp16"], "precision=fp16: strategy=fsdp does not support it. Next: give precision=bf16"),
        (["gpus=2", "log_model=true"], "log_model=true: strategy=fsdp .* Next: give save_model=final"),
        (["gpus=2", "overlap_grad_reduce=true"], "overlap_grad_reduce=true: strategy=fsdp does not support it"),
        (["gpus=2", "strategy=zero"], "strategy=zero: .*Allowed: ddp, fsdp"),
    ],
)
def test_what_cannot_be_sharded_is_refused(options: list[str], words: str) -> None:
    config = composed(["model=gpt", "recipe=gpt_cpu", "strategy=fsdp", *options])
    with pytest.raises(ConfigError, match=words):
        checks.check_run(config, EIGHT_GPUS)


def test_a_strategy_is_part_of_what_is_measured() -> None:
    config = composed(["model=gpt", "gpus=2"])
    assert composed(["model=gpt", "gpus=2", "strategy=ddp"]).config_hash() == config.config_hash()
    assert composed(["model=gpt", "gpus=2", "strategy=fsdp"]).config_hash() != config.config_hash()


@pytest.mark.parametrize(
    ("options", "capability", "words"),
    [
        (["model=gpt", "gpus=0"], 9.0, "precision=fp8: needs a GPU, .* give gpus=1, or precision=fp32 or bf16"),
        (["model=gpt", "gpus=1"], 8.0, "precision=fp8: needs compute capability 8.9, .* or bf16 from 8.0 on"),
        (["model=vgg", "gpus=1"], 9.0, "precision=fp8: model=vgg has no layers for it"),
    ],
)
def test_fp8_is_refused_where_the_gpu_or_the_model_has_none(options: list[str], capability: float, words: str) -> None:
    gpus = [dataclasses.replace(gpu, compute_capability=capability) for gpu in EIGHT_GPUS]
    with pytest.raises(ConfigError, match=words):
        checks.check_run(composed([*options, "precision=fp8"]), gpus)
