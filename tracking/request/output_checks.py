"""Refuses wrong options of a run's outputs: weights, a profile, an alert."""

from __future__ import annotations

import shlex
import shutil

from conf.launch_options import PROFILE_STEPS, AlertConfig, ProfileConfig
from conf.schema import SAVE_MODEL, ConfigError, RunConfig
from tracking.request import program_command


def check_save_model(config: RunConfig) -> None:
    if config.save_model not in SAVE_MODEL:
        raise ConfigError(f"save_model={config.save_model}: no such value. Allowed: {', '.join(SAVE_MODEL)}")
    if config.tracking.upload_model and config.save_model == "none":
        raise ConfigError(
            "tracking.upload_model=true: has no effect with save_model=none. Next: give save_model=final or"
            " save_model=best"
        )
    if config.log_model and not config.model.exportable:
        raise ConfigError(
            f"log_model=true: model={config.model.name} cannot be exported (exportable: false in its YAML). Next: keep"
            " the weights alone: save_model=final tracking.upload_model=true"
        )
    if config.register_model is not None and not config.log_model:
        raise ConfigError(
            f"register_model={config.register_model}: has no effect without log_model=true. Next: give both, or leave"
            " register_model out"
        )


def check_profile(config: RunConfig) -> None:
    """Raise ConfigError for a profile that cannot be made, and for options without effect."""
    profile = config.profile
    if profile.steps < 0:
        raise ConfigError(f"profile.steps={profile.steps}: must be 0 (no profile) or more; profile=true is 20")
    for key in ("trace_megabytes", "seconds", "after_sec"):
        if (number := getattr(profile, key)) <= 0:
            raise ConfigError(f"profile.{key}={number:g}: must be above 0")
    uses_cupti = profile.steps and config.is_program()
    for key, is_used in {"seed": True, "trace_megabytes": True, "seconds": uses_cupti, "after_sec": uses_cupti}.items():
        value, condition = getattr(profile, key), "profile=true" + ("" if is_used is True else " of a program")
        if not (is_used and (profile.steps or profile.file)) and value != getattr(ProfileConfig, key):
            raise ConfigError(f"profile.{key}={value}: has no effect without {condition}. Next: give both, or neither")
    if profile.nvtx and (config.is_program() or not config.on_gpu()):
        raise ConfigError(
            "profile.nvtx=true: marks a workload's training on GPUs only. Next: give gpus=1, or leave it out"
        )
    if profile.file is not None:
        check_trace_file(config, profile.file)
    elif profile.steps and config.is_program():
        check_cupti(config)


def check_trace_file(config: RunConfig, file: str) -> None:
    if not config.is_program():
        raise ConfigError(
            f"profile.file={file}: has no effect with model={config.model.name}, which is not a program. Next: give"
            " profile=true"
        )
    if config.profile.steps:
        raise ConfigError(f"profile.file={file}: has no effect with profile=true. Next: leave one out")
    program_command.with_values(file, "profile.file", dict.fromkeys(program_command.PLACEHOLDERS, ""))


def check_cupti(config: RunConfig) -> None:
    if config.profile.steps != int(PROFILE_STEPS["true"]):
        raise ConfigError(
            f"profile.steps={config.profile.steps}: the steps of a program are not known. Next: give profile=true, and"
            " profile.seconds"
        )
    if not config.on_gpu():
        raise ConfigError(
            "profile=true: CUPTI traces a program's kernels on GPUs. Next: give gpus=1, or profile.file=, the program's"
            " own trace"
        )


def check_alert(alert: AlertConfig) -> None:
    """Raise ConfigError for an alert's command that cannot be started, and for options without effect."""
    if alert.timeout_sec <= 0:
        raise ConfigError(f"alert.timeout_sec={alert.timeout_sec:g}: must be above 0")
    if alert.command is None:
        if alert.timeout_sec != AlertConfig.timeout_sec:
            raise ConfigError(
                f"alert.timeout_sec={alert.timeout_sec:g}: has no effect without alert.command. Next: leave it out"
            )
        return
    try:
        command = shlex.split(alert.command)
    except ValueError as error:
        raise ConfigError(f"alert.command={alert.command}: {error}. Next: close the quotes") from None
    if not command or shutil.which(command[0]) is None:
        raise ConfigError(f"alert.command={alert.command}: no such program. Next: give one on the PATH, or its path")
