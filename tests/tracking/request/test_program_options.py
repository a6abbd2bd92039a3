"""model=program: what is filled into a command, and what is refused before anything is started."""

from __future__ import annotations

import pytest

from conf.launch_options import ProgramConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.jobs.plan.run_setup import params
from tracking.request import checks
from tracking.request.program_command import command_words, quoted

RUN = ["model=program", "program.command='python train.py'"]


def checked(*more: str) -> RunConfig:
    return checks.check_run(composed(["model=program", *more]), EIGHT_GPUS)


def command(text: str) -> RunConfig:
    return checks.check_run(composed(["model=program", f"program.command='{text}'"]), EIGHT_GPUS)


def test_a_value_stays_one_word_and_doubled_braces_are_braces() -> None:
    program = ProgramConfig(command="python t.py --seed={seed} '{run_dir}/a b' '{{\"x\": {{}}}}' $HOME")
    argv = command_words(program, {"seed": 3, "run_dir": "/r u; n"})
    assert argv == ["python", "t.py", "--seed=3", "/r u; n/a b", '{"x": {}}', "$HOME"]


@pytest.mark.parametrize(
    "text", ["python t.py --seed {seed} --gpus 0,1", "sh -c 'a; b'", r"it\'s \\", 'a "b" {{}} [c] =d', r"end\\'"]
)
def test_a_command_needs_no_quotes_of_hydras(text: str) -> None:
    assert composed(["model=program", quoted(f"program.command={text}")]).program.command == text
    assert quoted(f"program.command='{text}'") == f"program.command='{text}'"
    assert composed(["model=program", quoted("program.epoch='epoch': '(.*)")]).program.epoch == "'epoch': '(.*)"
    assert quoted("seed=1,2") == "seed=1,2"


def test_a_program_is_refused_nothing_that_it_needs_and_its_params_are_what_is_known() -> None:
    config = checked(
        'program.command="t --seed {seed} -b {batch_size}"', "batch_size=4", "gpus=2", "seed=3", "target=0.9",
        '+program.metrics={eval/acc: "acc (.*)"}', "precision=bf16",
    )  # fmt: skip
    assert config.targets() == {"acc": 0.9}
    known = params(config)
    assert known["program"] == "t --seed {seed} -b {batch_size}"
    assert (known["batch_size"], known["target_metric"], known["precision"]) == (4, "acc", "bf16")
    assert not {"compile", "optimizer/lr", "global_batch_size"} & known.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], r"program\.command=: is empty. Next: give"),
        (["program.command='python {sede}'"], r"\{sede\} has no value. Allowed: .*\{seed\}"),
        (["program.command='python {'"], r"program\.command.*braces"),
        (['program.command="python \'x"'], r"program\.command.*close its quotes"),
        ([RUN[1], "program.samples_per_step=8"], "samples_per_step=8: has no effect without program.step"),
        ([RUN[1], 'program.step="(a)"', "program.samples_per_step=0"], "samples_per_step=0: must be above 0"),
        ([RUN[1], 'program.step="(a)"', "program.tokens_per_step=8"], "without program.samples_per_step"),
        (
            [RUN[1], 'program.step="(a)"', 'program.samples="(a)"', "program.samples_per_step=8"],
            "program.samples is given too",
        ),
        ([RUN[1], "program.launch=mpirun"], r"program\.launch=mpirun: no such value. Allowed: none, torchrun"),
        ([RUN[1], "program.cwd=nowhere"], r"program\.cwd=nowhere: no such folder"),
        ([RUN[1], '+program.metrics={eval/a: "("}'], r"program\.metrics\.eval/a=\(: not a regular expression"),
        ([RUN[1], '+program.metrics={eval/a: "a"}'], r"has 0 groups. Allowed: one group"),
        ([RUN[1], 'program.samples="(a)(b)"'], r"program\.samples=.*has 2 groups. Allowed: one"),
        ([RUN[1], 'program.start="(a)"'], r"program\.start=.*has 1 groups. Allowed: no group"),
        ([RUN[1], '+program.metrics={time/a: "(a)"}'], r"program\.metrics\.time/a: not a name .*own prefixes"),
        ([RUN[1], '+program.metrics={eval/a@b: "(a)"}'], r"program\.metrics\.eval/a@b: not a name"),
        ([RUN[1], "log_model=true"], "log_model=true: has no effect on a program.*mlflow.pytorch.log_model"),
        ([RUN[1], "compile=true"], "compile=True: has no effect on a program"),
        ([RUN[1], "log_every_n_steps=5"], "log_every_n_steps=5: has no effect on a program"),
        ([RUN[1], "model.optimizer.weight_decay=0.1"], r"optimizer\.weight_decay=0\.1: has no effect on a program"),
        ([RUN[1], "dataset.path=here"], r"dataset\.path=here: has no effect on a program"),
        ([RUN[1], "batch_size=4"], r"batch_size=4: has no effect.*\{batch_size\}"),
        (["program.command='t {max_epochs}'"], "give max_epochs="),
        (
            [RUN[1], "profile.file=t.json", "profile.steps=20"],
            r"profile\.file=t\.json: has no effect with profile=true",
        ),
        (
            [RUN[1], "profile.file='{rundir}/t'"],
            r"profile\.file=\{rundir\}/t: \{rundir\} has no value. Allowed: .*\{run_dir\}",
        ),
        (
            [RUN[1], "gpus=1", "profile.steps=5"],
            r"profile\.steps=5: the steps of a program are not known.*profile\.seconds",
        ),
        (
            [RUN[1], "gpus=0", "profile.steps=20"],
            r"profile=true: CUPTI traces .* on GPUs\. Next: give gpus=1, or profile",
        ),
        ([RUN[1], "gpus=1", "profile.steps=20", "profile.seconds=0"], "profile.seconds=0: must be above 0"),
        ([RUN[1], "profile.file=t.json", "profile.seconds=9"], "has no effect without profile=true of a program"),
        (
            ["model=vgg", "profile.steps=5", "profile.after_sec=9"],
            "after_sec=9.0: has no effect without profile=true of",
        ),
        ([RUN[1], "profile.file=t.json", "profile.trace_megabytes=0"], "trace_megabytes=0: must be above 0"),
        (["model=vgg", "profile.file=t.json"], r"profile\.file=t\.json: has no effect with model=vgg.*profile=true"),
        ([RUN[1], "gpus=9"], "gpus=9: 8 visible"),
        ([RUN[1], "gpus=0", "cpu_processes=2"], r"cpu_processes=2: has no effect.*torchrun"),
        (
            [RUN[1], '+program.metrics={eval/a: "(a)"}', "+model.targets.external.b=1"],
            r"b: no such metric. Allowed: a .eval/ of",
        ),
    ],
)
def test_a_refusal_says_what_to_do(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(*options)


def test_a_seed_of_which_the_program_hears_nothing_is_refused() -> None:
    asked = ["seed=2", *RUN]
    config = composed(asked)
    with pytest.raises(ConfigError, match=r"seed=2: has no effect, since program.command has no \{seed\}"):
        checks.check_job(config, asked, (), [])
    assert checks.check_job(config, RUN, (), []) == checks.check_run(config, [])
    config.program.command += " {seed}"
    checks.check_job(config, asked, (), [])


def test_an_axis_of_precisions_of_which_the_program_hears_nothing_is_refused() -> None:
    config = composed(["precision=bf16", *RUN])
    with pytest.raises(ConfigError, match=r"precision: is only a label .* has no \{precision\}"):
        checks.check_job(config, RUN, ["precision"], [])
    checks.check_job(config, RUN, [], [])
    config.program.command += " {precision}"
    checks.check_job(config, RUN, ["precision"], [])


def test_program_options_have_no_effect_on_a_model_of_ours() -> None:
    with pytest.raises(ConfigError, match="program: has no effect with model=vgg"):
        checks.check_run(composed(["program.command=x"]), [])


def test_the_configurations_of_other_runs_keep_their_hash() -> None:
    config = composed([])
    before = config.config_hash()
    config.program.command, config.log_model = "x", True
    assert config.config_hash() == before
    assert command("a").config_hash() != command("b").config_hash()
