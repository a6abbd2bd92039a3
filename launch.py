"""Train a workload to its target accuracy and measure it: `python launch.py -m model=vgg precision=fp32,bf16`.

compose → check → make a run folder → submit it to a queue → follow it (MLflow, progress, a table) → exit.
Exit codes: 0 = every job ran (a missed target is a result), 1 = a job failed, 2 = the request was refused.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.base.installation import LAUNCH, refuse_python

try:
    import hydra
except ModuleNotFoundError as error:
    refuse_python(error, "launch.py")
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser import overrides_parser, overrides_visitor
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep, Transformer
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf.instance_prices import prices
from conf.schema import ConfigError, RunConfig
from tracking.base import installation, paths, secrets
from tracking.base.console import LastingStream
from tracking.base.event_stream import EventStream
from tracking.jobs.handover import SupervisorProcess, ahead
from tracking.request import batch_checks, checks, refusal, search_options, strategy_checks, study_checks
from tracking.request.command_line import arguments, choices

if TYPE_CHECKING:
    from tracking.jobs.plan import Job
    from tracking.jobs.search import SearchJobs


@dataclass
class Request:
    """The jobs that the command line asks for."""

    jobs: list[tuple[RunConfig, list[str], list[str]]] = field(default_factory=list)  # config, overrides, swept keys
    multirun: bool = False
    axes: list[str] = field(default_factory=list)  # axes of a search, such as `batch_size=8,16`
    events: EventStream = field(default_factory=EventStream)
    search_path: list[str] = field(default_factory=list)  # --config-dir as an override, for jobs that a search adds

    def add(self, config: DictConfig) -> None:
        """Add one composed config as a job. Refuses it by SystemExit: Hydra would go on after an Exception."""
        hydra_config = HydraConfig.get()
        self.multirun = hydra_config.mode == RunMode.MULTIRUN
        swept_keys, overrides = list(hydra_config.sweeper.get("params") or {}), list(hydra_config.overrides.task)
        sources, chosen = hydra_config.runtime.config_sources, hydra_config.runtime.choices
        folders = [f"file://{each.path}" for each in sources if each.provider == "command-line"]
        self.search_path = [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []
        options = GlobalHydra.instance().config_loader().get_group_options
        try:
            run_config: Any = OmegaConf.to_object(config)
            if reason := refusal.added_option(run_config) or choices.wrong_choice(chosen, overrides, options, sources):
                raise ConfigError(reason)
            if name := study_checks.real_dataset(run_config, overrides):
                overrides.append(f"dataset={name}")
                run_config = refusal.declared(OmegaConf.to_object(hydra.compose("config", overrides)))
                study_checks.check_data(run_config)
        except (ConfigError, HydraException, OmegaConfBaseException) as error:
            raise SystemExit(refusal.explain(error)) from error
        self.jobs.append((run_config, overrides, swept_keys))


def main() -> int:
    """Run what the command line asks for. Returns the exit code."""
    if reason := installation.wrong_system() or paths.missing_folder():
        print(f"refused: {reason}", file=sys.stderr)
        return 2
    secrets.guard_tracebacks()
    events = EventStream.from_command_line(sys.argv)
    code = 1  # Python's exit code after a traceback
    try:
        code, reason = compose_and_launch(events)
        if reason:
            print(reason, file=sys.stderr)
            events.tell("refused" if code == 2 else "stopped", because=reason)
        return code
    finally:
        events.tell("ended", code=code)
        gc.freeze()  # Else Python searches all imported modules for garbage at exit: 0.05 s of a core.


def compose_and_launch(events: EventStream) -> tuple[int, str]:
    """Compose the jobs and run them. Returns the exit code, and why the request was refused or stopped."""
    prepare_hydra()
    try:
        sys.argv[1:] = arguments.hydra_arguments(sys.argv[1:])
        with ahead(sys.argv[1:]) as supervisor:
            with tempfile.TemporaryDirectory() as scratch:
                os.environ["TIMETRIAL_SCRATCH"] = scratch  # where conf/config.yaml sends Hydra's own output folders
                request = collect(events)
            return launch(request, supervisor) if request.jobs else 0, ""  # --help and --cfg job have no jobs
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        return 2, refusal.explain(error)
    except SystemExit as end:  # from Hydra: --help or a wrong flag; from Request.add: a refusal
        words = end.code if isinstance(end.code, str) else arguments.wrong_flags(sys.argv[1:]) if end.code == 2 else ""
        return 2 if words else int(end.code or 0), words
    except KeyboardInterrupt:
        return 1, "stopped"


def collect(events: EventStream) -> Request:
    """Have Hydra compose each job, or print what --help, --cfg and --version ask for."""
    values = {word: parsed(word).value() for word in arguments.options_of(sys.argv[1:]) if "range(" in word}
    choices.check_ranges(values, is_search=search_options.is_requested(sys.argv[1:]))
    request = Request(axes=axes_of(sys.argv[1:]), events=events)
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in request.axes]  # Hydra would sweep over them.
    compose = hydra.main(version_base="1.3", config_path="conf", config_name="config")(request.add)
    output = LastingStream(sys.stdout, BrokenPipeError)  # `launch.py --help | head` closes it early.
    with redirect_stdout(output):
        try:  # Hydra would print its own version.
            print(f"timetrial {installation.version()}") if "--version" in sys.argv[1:] else compose()
        except ValueError as error:
            if type(error) is not ValueError:  # Hydra raises a plain ValueError for contradicting flags.
                raise
            raise ConfigError(f"{error}. Next: -m ... dry_run=true lists the jobs of a sweep") from error
        finally:
            output.flush()
    choices.check_number(len(request.jobs), sys.argv[1:])
    return request


def launch(request: Request, supervisor: SupervisorProcess | None) -> int:
    """Check all jobs, then run them. `supervisor` was started in advance, for the first run on this machine."""
    from tracking.jobs.follow import search_price
    from tracking.jobs.plan import Job, planned, sweep
    from tracking.jobs.queues import Launcher
    from tracking.jobs.worker_command import check_workload
    from tracking.machine.environment import check_cache, nvml, processes
    from tracking.machine.stacks import judge_all

    check_cache()
    gpus = nvml.noted_gpus()
    checked = [Job(checked_in(request, job, gpus), job[1]) for job in request.jobs]
    before, after = [config for config, *_ in request.jobs], [job.config for job in checked]
    for note in batch_checks.notes_on_gpus(before, after) + strategy_checks.notes_on_fp8(after):
        print(f"note: {note}", file=sys.stderr)
    resumed_sweep, jobs = planned(checked, request.multirun, gpus)
    request.search_path = request.search_path or sweep.search_path(resumed_sweep)
    search = search_for(request, checked[0], resumed_sweep, jobs, gpus)
    config = checked[0].config if resumed_sweep else jobs[0].config  # This launch's options, such as its server.
    configs = search.corners() if search else [job.config for job in jobs if not job.finished]
    for job_config in configs:
        check_workload(job_config)
    verdicts = judge_all(configs, gpus) if config.cluster.kind == "none" else {}
    new_search = None if resumed_sweep else search
    first_jobs = new_search.next_jobs() if new_search else jobs  # run_sweep makes the folder with them.
    if new_search and (note := search_price.check_budget(new_search, gpus)):
        print(f"note: {note}", file=sys.stderr)
    for job in first_jobs:
        request.events.tell("composed", overrides=job.overrides)
    with Launcher(config, gpus, processes.begun(), supervisor, request.events) as launcher:
        if config.dry_run:
            block = new_search.block() if new_search else []
            return launcher.dry_run(block or [job for job in jobs if not job.settled], verdicts, search)
        launcher.check_jobs(configs, verdicts)
        launcher.check_server()
        launcher.make_stacks(configs)
        if config.node_rank:
            return launcher.run_node(config)
        if search or request.multirun or resumed_sweep:
            return launcher.run_sweep(jobs, sys.argv[1:] + request.axes, resumed_sweep, search)
        return launcher.run_single(jobs[0])


def checked_job(request: Request, gpus: list[Any], keys: list[str], words: list[str]) -> RunConfig:
    return checks.check_job(composed(request, words), words, keys, gpus)


def checked_in(request: Request, job: tuple[RunConfig, list[str], list[str]], gpus: list[Any]) -> RunConfig:
    """The checked config of a job, with values of a search's axes if it needs them. Raises ConfigError."""
    config, words, keys = job
    if not request.axes:
        return checks.check_job(config, words, keys, gpus)
    from tracking.jobs.search import checked_request

    return checked_request(words, request.axes, parsed_axis, partial(checked_job, request, gpus, keys))


def search_for(request: Request, job: Job, folder: Path | None, jobs: list[Job], gpus: list[Any]) -> SearchJobs | None:
    """The requested search, new or continued in `folder`. None without a search. Raises ConfigError."""
    from tracking.jobs.search import search_of

    resumed, make = jobs if folder else [], partial(checked_job, request, gpus, [])
    search = search_of(job, resumed, folder, request.axes, parsed_axis, make, len(gpus))
    if request.axes and not search:
        raise ConfigError(f"{' '.join(request.axes)}: axes, but no search is requested. Next: add +search=quickest")
    return search


def composed(request: Request, overrides: list[str]) -> RunConfig:
    """The config of a job from its overrides. Raises ConfigError, and the errors of Hydra and OmegaConf."""
    GlobalHydra.instance().clear()
    with hydra.initialize(version_base="1.3", config_path="conf"):
        return refusal.declared(OmegaConf.to_object(hydra.compose("config", [*request.search_path, *overrides])))


def axes_of(words: list[str]) -> list[str]:
    """The arguments that are axes of a search; empty without a search."""
    if not search_options.is_requested(words):
        return []
    options = map(parsed, arguments.options_of(words))
    return [str(each.input_line) for each in options if each.value() == "" or each.is_sweep_override()]


def parsed(word: str) -> Override:
    return overrides_parser.OverridesParser.create().parse_overrides([word])[0]  # parse_override's errors lack the word


def parsed_axis(word: str) -> tuple[str, object, list[Any]]:
    """An axis: its key, Hydra's sweep over it, and its values if it lists them. Raises ConfigError."""
    sweep = (given := parsed(word)).value()
    try:
        values = list(given.sweep_iterator(Transformer.identity)) if isinstance(sweep, ChoiceSweep | RangeSweep) else []
    except ValueError as error:
        raise ConfigError(f"{word}: {error}. Next: list the values: {given.key_or_group}=8,16,32") from None
    return word.partition("=")[0], sweep, values


def prepare_hydra() -> None:
    """Register the schema with Hydra, and patch what launch.py needs changed in Hydra."""
    ConfigStore.instance().store("schema", RunConfig)
    for name, price in prices().items():
        ConfigStore.instance().store(name, price, group="instance", package="instance")
    if not __debug__:  # Hydra's parser consumes tokens inside assertions, which PYTHONOPTIMIZE removes.
        source = compile(inspect.getsource(overrides_visitor), overrides_visitor.__file__, "exec", optimize=0)
        exec(source, vars(overrides_visitor))
        overrides_parser.HydraOverrideVisitor = overrides_visitor.HydraOverrideVisitor  # type: ignore[attr-defined]
    # Hydra would copy the schema and all prices for each composition, although it also copies each entry that it uses.
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    # Hydra composes each job of a sweep twice: to check it, then to run it. `collect` composes all before any runs.
    Sweeper.validate_batch_is_legal = lambda self, batch: None  # type: ignore[method-assign]
    if not arguments.may_set_hydra(sys.argv[1:]):  # Hydra would compose everything once more to look for hydra.mode.
        Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them.
    os.environ["TIMETRIAL_LAUNCH"] = LAUNCH  # for the help in conf/config.yaml


if __name__ == "__main__":
    sys.exit(main())
