"""Train a workload to its target accuracy and measure it: `python launch.py -m model=vgg precision=fp32,bf16`.

compose → check → make a run folder → submit it to a queue → follow it (MLflow, progress, a table) → an exit code:
0 = every job ran (a missed target is a result), 1 = a job failed, 2 = the request was refused.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser import overrides_parser, overrides_visitor
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, RangeSweep, Transformer
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf import launch_options, schema
from conf.instance_prices import prices
from conf.schema import ConfigError, RunConfig
from tracking.base import installation, secrets
from tracking.base.console import LastingStream
from tracking.base.event_stream import EventStream
from tracking.base.installation import LAUNCH, PREFIX
from tracking.jobs.handover import SupervisorProcess, ahead
from tracking.request import checks, program_command, refusal, study_checks

if TYPE_CHECKING:
    from tracking.jobs.plan import Job
    from tracking.jobs.search import SearchJobs

# Words that ask for a search.
SEARCHES = re.compile(r"\+{0,2}search=.*|sweep\.until_decided=(?i:true|yes|on|1)")


@dataclass
class Request:
    """What the command line asks for."""

    jobs: list[tuple[RunConfig, list[str], list[str]]] = field(default_factory=list)  # config, overrides, swept keys
    refusals: list[str] = field(default_factory=list)  # raised when Hydra is done: it would print its own words first
    multirun: bool = False
    axes: list[str] = field(default_factory=list)  # of a search, such as `batch_size=8,16`
    events: EventStream = field(default_factory=EventStream)
    before: list[str] = field(default_factory=list)  # Hydra's words for --config-dir, for jobs that a search adds

    def add(self, config: DictConfig) -> None:
        """Note one job. Hydra calls this for each that it has composed."""
        hydra_config = HydraConfig.get()
        self.multirun = hydra_config.mode == RunMode.MULTIRUN
        swept, overrides = list(hydra_config.sweeper.get("params") or {}), list(hydra_config.overrides.task)
        job = OmegaConf.to_object(config)
        self.jobs.append((job, overrides, swept))  # type: ignore[arg-type]
        sources = hydra_config.runtime.config_sources
        folders = [f"file://{source.path}" for source in sources if source.provider == "command-line"]
        self.before = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
        options = GlobalHydra.instance().config_loader().get_group_options
        choices = hydra_config.runtime.choices
        if wrong := refusal.added_option(job) or refusal.wrong_choice(choices, overrides, options):
            self.refusals.append(wrong)


def main() -> int:
    """Run what the command line asks for; the exit code."""
    if wrong := installation.wrong_system():
        print(f"refused: {wrong}", file=sys.stderr)
        return 2
    secrets.guard_tracebacks()
    events = EventStream.asked(sys.argv)
    code = 1  # the exit code of a traceback
    try:
        code, why = launched(events)
        if why:
            print(why, file=sys.stderr)
            events.tell("refused" if code == 2 else "stopped", because=why)
        return code
    finally:
        events.tell("ended", code=code)


def launched(events: EventStream) -> tuple[int, str]:
    """Compose the jobs and run them; the exit code, and why the request was refused or stopped."""
    prepare_hydra()
    try:
        with ahead(sys.argv[1:]) as waiting:
            with tempfile.TemporaryDirectory() as scratch:
                os.environ["TIMETRIAL_SCRATCH"] = scratch  # where conf/config.yaml sends Hydra's own output folders
                request = on_real_data(collect(events))
            if request.refusals:
                raise ConfigError(request.refusals[0])
            return launch(request, waiting) if request.jobs else 0, ""  # --help and --cfg job ask for none
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        return 2, refusal.explain(error)
    except KeyboardInterrupt:
        return 1, "stopped"


def collect(events: EventStream) -> Request:
    """Have Hydra compose each job, or print what --help and its like ask for. The reader of the output may go away."""
    request = Request(axes=axes_of(sys.argv[1:]), events=events)
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in request.axes]  # Hydra would sweep over them.
    compose = hydra.main(version_base="1.3", config_path="conf", config_name="config")(request.add)
    output = LastingStream(sys.stdout, BrokenPipeError)
    with redirect_stdout(output):
        try:
            if "--version" in sys.argv[1:]:  # Hydra would print its own.
                print(f"timetrial {installation.version()}")
            else:
                compose()
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise ConfigError(f"{error}; `-m ... dry_run=true` lists a sweep's jobs") from error  # Hydra's flags
        finally:
            output.flush()
    return request


def launch(request: Request, waiting: SupervisorProcess | None) -> int:
    """Check all jobs, then run them: on this machine, one or several at once, or on a cluster.

    `waiting` is a supervisor that was started ahead, for the first run on this machine.
    """
    from tracking.jobs.follow import search_price
    from tracking.jobs.plan import Job, planned
    from tracking.jobs.queues import Launcher
    from tracking.jobs.worker_command import check_workload
    from tracking.machine.environment import check_cache, processes
    from tracking.machine.stacks import judge_all

    check_cache()
    gpus = visible_gpus()
    asked = [Job(checks.check_job(config, words, params, gpus), words) for config, words, params in request.jobs]
    folder, jobs = planned(asked, request.multirun, gpus)
    search = search_for(request, asked[0], folder, jobs, gpus)
    config = asked[0].config if folder else jobs[0].config
    configs = search.corners() if search else [job.config for job in jobs if not job.finished]
    for each in configs:
        check_workload(each)
    verdicts = judge_all(configs, gpus) if config.cluster.kind == "none" else []
    if search and not folder:
        search.next_jobs()  # A sweep's folder has a job.
        search_price.check_budget(search, gpus)
    for job in jobs if not search else []:
        request.events.tell("composed", overrides=job.overrides)
    with Launcher(config, gpus, processes.begun(), waiting, request.events) as launcher:
        if config.dry_run:
            block = search.block() if search and not folder else []
            return launcher.dry_run(block or [job for job in jobs if not job.finished], verdicts, search)
        launcher.check_jobs(configs, verdicts)
        launcher.check_server()
        launcher.make_stacks(configs)
        if config.node_rank:
            return launcher.run_node(config)
        if search or request.multirun or folder:
            return launcher.run_sweep(jobs, sys.argv[1:] + request.axes, folder, search)
        return launcher.run_single(jobs[0])


def search_for(
    request: Request, first: Job, folder: Path | None, jobs: list[Job], gpus: list[Any]
) -> SearchJobs | None:  # fmt: skip
    """The search that is asked for, new or in the `folder` of one that goes on; None where none is."""
    from tracking.jobs.search import search_of

    def further(words: list[str]) -> RunConfig:
        return checks.check_job(composed(request, words), words, [], gpus)

    search = search_of(first, jobs if folder else [], folder, request.axes, parsed_axis, further, len(gpus))
    if request.axes and not search:
        axes = " ".join(request.axes)
        raise ConfigError(f"{axes}: are axes of a search, and none is asked for; add +search=quickest")
    return search


def visible_gpus() -> list[Any]:
    """The GPUs of this machine. Prints a note where there is a driver that shows none."""
    from tracking.machine.environment import nvml

    if why := nvml.trouble():
        print(f"note: {why}", file=sys.stderr)
    return list(nvml.visible_gpus())


def composed(request: Request, words: list[str]) -> RunConfig:
    """The config of a job that a search adds. Raises what Hydra and OmegaConf raise."""
    GlobalHydra.instance().clear()
    with hydra.initialize(version_base="1.3", config_path="conf"):
        return OmegaConf.to_object(hydra.compose("config", [*request.before, *words]))  # type: ignore[return-value]


def on_real_data(request: Request) -> Request:
    """With study.data=real, each job on its model's own dataset."""
    for place, (config, words, params) in enumerate(request.jobs):
        if name := study_checks.real_dataset(config, words):
            request.jobs[place] = composed(request, [*words, f"dataset={name}"]), [*words, f"dataset={name}"], params
    return request


def axes_of(words: list[str]) -> list[str]:
    """The words of a command line that are axes of a search; empty where it asks for no search."""
    if not any(SEARCHES.fullmatch(word) for word in words):
        return []
    parser = OverridesParser.create()
    options = [word for word in words if "=" in word and not word.startswith("-")]
    return [word for word in options if word.endswith("=") or parser.parse_override(word).is_sweep_override()]


def parsed_axis(word: str) -> tuple[str, object, list[Any]]:
    """An axis: its key, Hydra's sweep over it, and its values where it lists them."""
    override = OverridesParser.create().parse_override(word)
    sweep = override.value()
    try:
        lists = isinstance(sweep, ChoiceSweep | RangeSweep)
        values = list(override.sweep_iterator(Transformer.identity)) if lists else []
    except ValueError as error:
        raise ConfigError(f"{word}: {error}; give values: {override.key_or_group}=8,16,32") from None
    return word.partition("=")[0], sweep, values


def prepare_hydra() -> None:
    """Register the options with Hydra, and bring the command line into a form that it parses."""
    ConfigStore.instance().store("schema", schema.RunConfig)
    for name, price in prices().items():
        ConfigStore.instance().store(name, price, group="instance", package="instance")
    if not __debug__:  # Hydra's parser reads on within assertions, which PYTHONOPTIMIZE leaves out.
        source = compile(inspect.getsource(overrides_visitor), overrides_visitor.__file__, "exec", optimize=0)
        exec(source, vars(overrides_visitor))
        overrides_parser.HydraOverrideVisitor = overrides_visitor.HydraOverrideVisitor  # type: ignore[attr-defined]
    # Hydra would compose each job of a sweep twice: to check it, and to run it. Here all are composed before one runs.
    Sweeper.validate_batch_is_legal = lambda self, batch: None  # type: ignore[method-assign]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Its errors come here and are told in our words.
    os.environ["TIMETRIAL_LAUNCH"] = LAUNCH if PREFIX else f"python {LAUNCH}"  # for the help in conf/config.yaml
    # Hydra takes these groups without a plus only, since they are in the defaults list.
    for group in ("target_set=", "search="):
        sys.argv[1:] = [re.sub(rf"^\+{{1,2}}{group}", group, argument) for argument in sys.argv[1:]]
    sys.argv[1:] = launch_options.recipes_of_sizes([launch_options.spelled_out(word) for word in sys.argv[1:]])
    # Hydra refuses options on both sides of a flag, as in `gpus=1 -m seed=1,2`: flags go first.
    sys.argv[1:] = sorted(
        map(program_command.quoted, sys.argv[1:]), key=lambda argument: argument not in ("-m", "--multirun")
    )


if __name__ == "__main__":
    sys.exit(main())
