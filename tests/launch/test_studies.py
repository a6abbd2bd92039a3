"""The studies of conf/study: their grids compose and pass the checks, and what their options mean."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks.steps import in_calls, scaling, why
from conf.instance_prices import prices
from conf.schema import ConfigError, RunConfig
from tests.support.commands import environment
from tests.support.composing import EIGHT_GPUS, ROOT, composed, jobs, study
from tests.support.in_process import answer
from tracking.analysis.published import studies
from tracking.jobs.plan.sweep_summary import flat
from tracking.machine.environment.nvml import Gpu
from tracking.request import checks, study_checks
from tracking.request.command_line.arguments import hydra_argument

STUDIES = sorted(path.stem for path in (ROOT / "conf/study").glob("*.yaml"))
MODELS = len(list((ROOT / "conf/model").glob("*.yaml"))) - 1  # without `program`, which needs a command
STACKS = len(list((ROOT / "conf/stack").glob("*.yaml")))


def test_there_is_one_for_each_question() -> None:
    assert STUDIES == ["batches", "fashion_mnist", "nodes", "precision", "scaling", "stacks", "topology"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param("batches", 5 * MODELS * 3, marks=pytest.mark.exhaustive),
        ("fashion_mnist", 3 * 2),  # augmented epochs, repeats
        ("nodes", 4 * 3),
        pytest.param("precision", 4 * MODELS * 3, marks=pytest.mark.exhaustive),
        pytest.param("scaling", 3 * MODELS * 3, marks=pytest.mark.exhaustive),
        ("stacks", STACKS * 3),
        ("topology", 2 * 2 * 3 * 3),  # models, links, GPUs, repeats
    ],
)
def test_the_whole_grid_composes_and_passes_the_checks_on_eight_gpus(name: str, number: int) -> None:
    asked = jobs([f"+study={name}"])
    assert len(asked) == number
    configs = [checks.check_run(composed(overrides), EIGHT_GPUS) for overrides in asked]
    assert len({config.config_hash() for config in configs}) == number  # The sweep would be refused otherwise.
    assert {config.study.name for config in configs} == {name}
    # The repeats are the slowest to change: what drifts while the sweep runs falls on all settings alike.
    seeds = [config.seed for config in configs]
    assert seeds == sorted(seeds)
    assert len(set(seeds)) >= 2


def asked_by(commands: Iterable[in_calls.Command]) -> dict[str, list[RunConfig]]:
    """The runs of each command that launches any, composed and checked on a machine of eight GPUs."""
    words = {command.name: shlex.split(command.words)[2:] for command in commands if "launch.py" in command.words}
    return {
        name: [checks.check_run(composed(job), EIGHT_GPUS) for job in jobs([*map(hydra_argument, every)])]
        for name, every in words.items()
    }


def test_what_measures_it_on_gpus_composes_and_passes_the_checks() -> None:
    """benchmarks/steps/why.py, on a machine of eight; all sweeps are what they say."""
    num_settings = {}
    for name, runs in asked_by(why.commands(in_calls.EIGHT)).items():
        num_settings[name] = len({(run.precision.name, str(run.gpus), str(run.stack.env)) for run in runs})
        assert len({run.config_hash() for run in runs}) == len(runs)
    assert num_settings == {"precision": 4, "profiles": 2, "topology": 4}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_measures_scaling_composes_and_passes_the_checks() -> None:
    """benchmarks/steps/scaling.py, on a machine of eight: each workload on each number of GPUs, three seeds."""
    asked = asked_by(scaling.commands(in_calls.EIGHT))
    elsewhere = {"program", "gpt", "llama", "minigo"}  # The last three have benchmarks of their own.
    models = {path.stem for path in (ROOT / "conf/model").glob("*.yaml")} - elsewhere
    settings = [(run.model.name, int(run.gpus)) for name, runs in asked.items() if "accuracy" in name for run in runs]
    assert Counter(settings) == dict.fromkeys(itertools.product(models, (1, 2, 4, 8)), 3)
    for name, model in scaling.MODELS.items():  # The batches are the recipes', and smaller ones for more GPUs.
        assert {run.device_batch_size() for run in asked[f"accuracy-{name}-1gpu"]} == {model.batch_size}
        smaller = [runs[0] for label, runs in asked.items() if label.startswith(f"batch-{name}-8gpu")]
        assert {round(8 * run.device_batch_size() / model.batch_size) for run in smaller} == {1, 2, 4}
    in_rates = {run.model.name for name, runs in asked.items() if name.startswith("rate") for run in runs}
    assert in_rates == models - {"vgg"}
    hashes = [run.config_hash() for runs in asked.values() for run in runs]
    assert len(set(hashes)) == len(hashes)


def test_where_a_call_was_cut_short_the_next_one_resumes_the_sweep(tmp_path: Path) -> None:
    printed, words = tmp_path / "links.txt", in_calls.sweep("gpus=1", "links")
    assert in_calls.continued(words, printed) == words
    printed.write_text("stopped by SIGTERM; continue with: python launch.py sweep.resume=20261125-a\n")
    resumed = in_calls.continued(words, printed).split()[1:]
    assert resumed == ["sweep.resume=20261125-a", "tracking.offline=true", "runs_dir=links"]


@pytest.mark.slow
def test_commands_share_a_machine_go_on_where_a_call_ended_and_one_that_fails_stops_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    its_gpu = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)'
    commands = [
        in_calls.Command("fails", "-c 'raise SystemExit(3)'", 2, least_sec=0),
        in_calls.Command("left", "meets.py left right", 1, least_sec=0),  # each waits for the other
        in_calls.Command("right", "meets.py right left", 1, least_sec=0),
        in_calls.Command("waits", "waits.py", 1, least_sec=0),
        in_calls.Command("visible", f"-c '{its_gpu}'", 1, least_sec=0),
        in_calls.Command("long", "-c 'print(1)'", 1, least_sec=1000),
        in_calls.Command("report", "-c 'print(1)'", least_sec=0),
    ]
    (tmp_path / "waits.py").write_text(f"{its_gpu}\nimport time; time.sleep(600)")
    (tmp_path / "meets.py").write_text(
        "import pathlib, sys, time\n"
        "own, other = map(pathlib.Path, sys.argv[1:])\n"
        "own.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
    )

    def call(sec: float) -> int:
        return in_calls.measure(commands, [4, 6], tmp_path, time.monotonic() + in_calls.STOP_SEC + sec)

    def codes() -> dict[str, str]:
        return {path.stem: path.read_text().strip() for path in tmp_path.glob("*.done")}

    assert call(12) == 1  # Waiting is cut short; for the long one there is too little time, and no report without it.
    assert codes() == {"fails": "3", "left": "0", "right": "0", "visible": "0"}
    gpus = {(tmp_path / f"{name}.txt").read_text() for name in ("waits", "visible")}
    assert gpus == {"4\n", "6\n"}  # The one that waits keeps its GPU; whichever of the two ended first left it.
    (tmp_path / "waits.py").write_text("print('through')")
    assert call(2000) == 0
    assert codes() == dict.fromkeys([command.name for command in commands], "0") | {"fails": "3"}
    assert (tmp_path / "waits.txt").read_text().endswith("through\n")  # after the GPU of the first call
    assert call(2000) == 0  # and nothing is run again
    assert (tmp_path / "report.txt").read_text() == "1\n"
    printed = capsys.readouterr().out
    assert "fails: exit code 3" in printed
    assert "report: not done" in printed


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_says_of_its_report_and_of_being_cut_down_holds(name: str) -> None:
    about = study(name)
    assert about["name"] == name
    if about.get("reference"):
        assert studies.known_studies(about["reference"])
    small = shlex.split(about["smaller"])
    configs = [checks.check_run(composed(overrides), []) for overrides in jobs([f"+study={name}", *small])]
    assert 1 <= len(configs) <= 4
    for axis in about["by"]:
        assert axis.startswith("env.") or axis in flat(configs[0]) or f"{axis}.name" in flat(configs[0]), axis
    assert f"launch.py -m +study={name} {about['smaller']}" in (ROOT / "docs/studies.md").read_text()


def test_the_command_line_goes_before_the_grid() -> None:
    asked = jobs(["+study=precision", "model=vgg", "precision=fp32,bf16", "seed=7", "gpus=0"])
    assert [[config.precision.name, config.seed, config.gpus] for config in map(composed, asked)] == [
        ["fp32", 7, 0],
        ["bf16", 7, 0],
    ]


def test_a_study_changes_nothing_of_what_a_run_is() -> None:
    (overrides,) = jobs(["+study=precision", "model=vgg", "precision=fp32", "gpus=0", "seed=1"])
    assert composed(overrides).config_hash() == composed(["gpus=0"]).config_hash()  # It resumes and compares only then.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["+study=precision", "gpus=0"], "python launch.py -m +study=precision"),
        (["-m", "+study=precision,scaling", "gpus=0"], "one at a time"),
        (["-m", "+study=scaling", "model=vgg"], "gpus=1: 0 visible on this machine"),
        (
            ["-m", "+study=scaling", "model=vgg", "seed=1"],
            "python launch.py -m +study=scaling gpus=0 cpu_processes=1,2 model=vgg",
        ),
        (["-m", "+study=scalings"], "fashion_mnist, nodes, precision, scaling, stacks, topology"),
    ],
)
def test_a_study_that_cannot_run_as_asked_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    refused = answer(tmp_path, *arguments, CUDA_VISIBLE_DEVICES="")
    assert refused.code == 2
    assert words in refused.output
    assert "Error executing job" not in refused.output
    assert not refused.folders


def test_a_price_given_goes_before_that_of_the_instance() -> None:
    config = checks.check_run(composed(["instance=p3_2xlarge", "price_per_hour=2.5"]), [])
    assert (config.instance.name, config.instance.price_per_hour) == ("p3_2xlarge", 2.5)
    assert config.instance.source == "price_per_hour"  # It is no longer the study that the other price was read in.
    assert checks.check_run(composed(["instance=p3_2xlarge"]), []).instance.price_per_hour == 3.06
    with pytest.raises(ConfigError, match="price_per_hour=-1"):
        checks.check_run(composed(["price_per_hour=-1"]), [])
    with pytest.raises(ConfigError, match=r"instance\.currency=EUR.*convert"):
        checks.check_run(composed(["instance.currency=EUR"]), [])


@pytest.mark.parametrize("path", sorted((ROOT / "conf/instance").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_instances_price_has_a_source(path: Path) -> None:
    instance = composed([f"instance={path.stem}"]).instance
    assert (instance.price_per_hour is None) == (not instance.source)


def test_prices_of_cloud_machines_are_choices_with_where_when_and_who() -> None:
    there = prices()
    assert len(there) > 30
    assert all(price["price_per_hour"] > 0 and price["date"] and price["source"] for price in there.values())
    instance = checks.check_run(composed(["instance=p5_48xlarge"]), []).instance
    assert (instance.name, instance.price_per_hour, instance.region) == ("p5_48xlarge", 55.04, "us-east-1")
    with pytest.raises(ConfigError, match=r"gpus=4: instance=g4dn_xlarge has 1 GPUs"):
        checks.check_run(composed(["instance=g4dn_xlarge", "gpus=4"]), EIGHT_GPUS)
    assert not {path.stem for path in (ROOT / "conf/instance").glob("*.yaml")} & there.keys()


DGX1 = "study.batch_size={resnet50:{1:512,4:416,8:208},ssd:{1:152,4:38,8:19}}"


def test_the_batch_goes_with_the_gpus_by_a_table() -> None:
    def batch(*words: str) -> tuple[int, int]:
        config = checks.check_run(composed(["gpus=4", *map(hydra_argument, words)]), EIGHT_GPUS)
        return config.device_batch_size(), config.samples_per_step()

    assert batch("model=resnet50", DGX1) == (416, 1664)
    assert batch("model=ssd", DGX1) == (38, 152)
    assert batch("model=vgg", DGX1) == (64, 256)  # It is not in the table.
    assert batch("model=vgg", "study.batch_size={4:16}") == (16, 64)
    assert batch("model=vgg", "study.batch_factor=0.5") == (32, 128)
    for words in (DGX1, "study.batch_factor=0.5"):  # A resumed run is checked once more, from its config.
        once = checks.check_run(composed(["gpus=4", "model=ssd", hydra_argument(words)]), EIGHT_GPUS)
        assert checks.check_run(once, EIGHT_GPUS) == once
    with pytest.raises(ConfigError, match=r"study\.batch_size: .* model=vgg for 4 devices, only for 1, 8"):
        batch("model=vgg", "study.batch_size={1:16,8:2}")
    with pytest.raises(ConfigError, match="give one"):
        batch("model=vgg", "study.batch_size={4:16}", "batch_size=8")


def test_real_data_is_each_models_own() -> None:
    names = ("resnet50", "ssd", "maskrcnn", "gnmt", "transformer", "ncf")
    own = {name: study_checks.real_dataset(composed([f"model={name}", "study.data=real"]), []) for name in names}
    assert own == dict(zip(names, ("imagenet", "coco", "coco", "wmt", "wmt", "movielens"), strict=True))
    vgg = composed(["study.data=real"])
    assert study_checks.real_dataset(vgg, ["dataset=digits"]) is None
    assert study_checks.real_dataset(composed([]), []) is None
    with pytest.raises(ConfigError, match=r"study\.data=all: no such value. Allowed: real"):
        study_checks.real_dataset(composed(["study.data=all"]), [])


def test_data_dir_has_the_folders_of_all_datasets() -> None:
    for name in ("imagenet", "coco", "wmt", "movielens", "fashion_mnist", "tokens", "text"):
        (model,) = [
            path.stem for path in sorted((ROOT / "conf/model").glob("*.yaml")) if f"  {name}:" in path.read_text()
        ][:1]
        words = [f"model={model}", f"dataset={name}"]
        usual, moved = composed(words), composed([*words, "data_dir=/big"])
        assert Path(moved.dataset.path or "") == Path("/big") / Path(usual.dataset.path or "").name
        assert (usual.dataset.path or "").startswith("data/")
        assert composed([*words, "data_dir=/big", "dataset.path=/own"]).dataset.path == "/own"
    digits = composed(["data_dir=/big"])
    assert digits.config_hash() == composed([]).config_hash()


@pytest.mark.slow
def test_the_study_of_scaling_on_real_data_is_one_command_where_data_dir_has_it(tmp_path: Path) -> None:
    """Each model with a real dataset is on it; without its folder the command is refused, with what to type."""
    data = tmp_path / "data sets"
    for name in ("imagenet", "coco", "ml-20m"):
        (data / name).mkdir(parents=True)
    words = ["-m", "+study=scaling", "study.data=real", f"data_dir={data}", "gpus=0", "cpu_processes=1", "seed=1"]
    words += ["precision=fp32", "study.batch_size={resnet50:{1:512},ssd:{1:152},ncf:{1:1048575}}", "dry_run=true"]
    made = answer(tmp_path, *words, "model=resnet50,ssd,ncf")
    assert made.code == 0, made.output
    for name in ("resnet50-imagenet-fp32", "ssd-coco-fp32", "ncf-movielens-fp32"):
        assert name in made.output
    refused = answer(tmp_path, *words, "model=resnet50,gnmt")
    assert refused.code == 2
    assert "wmt is not a folder with dataset=wmt of model=gnmt. Next: give data_dir=FOLDER" in refused.output


@pytest.mark.slow
def test_a_study_without_its_data_is_refused_at_its_first_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 120 jobs, and each takes Hydra 0.3 s."""
    made: list[object] = []
    to_object = OmegaConf.to_object

    def noted(config: object) -> object:
        made.append(to_object(config))
        return made[-1]

    monkeypatch.setattr(OmegaConf, "to_object", noted)
    words = ["-m", "+study=precision", "study.data=real", "data_dir=/nowhere", "dry_run=true"]
    refused = answer(tmp_path, *words)
    assert refused.code == 2
    assert "refused: study.data=real: /nowhere/" in refused.output
    assert (
        sum(isinstance(each, RunConfig) for each in made) == 2
    )  # the first job, on its small dataset and on the real one


# Memory in GiB and compute capability by NVIDIA's names.
SYSTEMS = {
    "Tesla P100-PCIE-16GB": (16, 6.0), "Tesla V100-SXM2-32GB": (32, 7.0), "Tesla T4": (15, 7.5),
    "NVIDIA A100-SXM4-80GB": (80, 8.0), "NVIDIA L40S": (45, 8.9), "NVIDIA B200": (180, 10.0),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", STUDIES)
def test_the_grid_passes_the_checks_on_other_gpus_or_says_what_to_leave_out(name: str, system: str) -> None:
    """GPUs before the A100 run it in fp16, and a P100 in fp32; each refusal names the precision."""
    memory, capability = SYSTEMS[system]
    gpus = [Gpu(index, system, f"GPU-{index}", memory * 2**30, capability) for index in range(8)]
    old = capability < 8
    fitting = "precision=fp32" if capability < 7 else "precision=fp32,fp16"
    precision = [fitting] if old and name != "fashion_mnist" else []
    if old and precision:
        with pytest.raises(ConfigError, match="precision="):
            [checks.check_run(composed(words), gpus) for words in jobs([f"+study={name}", "seed=1"])]
    for words in jobs([f"+study={name}", "seed=1", *precision]):
        checks.check_run(composed(words), gpus)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "nodes"])  # that one asks Slurm
def test_a_dry_run_on_other_gpus_says_that_all_jobs_can_run(tmp_path: Path, name: str, system: str) -> None:
    """GPUs before the T4 need an older PyTorch, which is a stack of its own."""
    memory, capability = SYSTEMS[system]
    words = ["-m", f"+study={name}", "seed=1", "dry_run=true"]
    words += ["model=vgg,resnet50"] if name in ("batches", "precision", "scaling") else []
    if name != "fashion_mnist":
        words += ["precision=fp32"] if capability < 7 else ["precision=fp32,fp16"] if capability < 8 else []
    words += ["stack=torch2_6"] if capability < 7.5 and name != "stacks" else []
    asked = [sys.executable, "-m", "tests.support.fake_gpus", system, str(memory), str(capability), *words]
    done = subprocess.run(asked, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ checked; nothing was trained", done.stdout, re.MULTILINE)
