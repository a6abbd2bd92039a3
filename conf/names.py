"""What names runs, their folders and their experiment: refused before it becomes part of a path or of MLflow."""

from __future__ import annotations

import re

from conf.schema import ConfigError, RunConfig

MAX_NAME = 40  # characters: four such parts, a time and what a sweep varies make a folder's name, of 255 bytes
NAME = rf"[\w+-][\w.+-]{{0,{MAX_NAME - 1}}}"
MAX_EXPERIMENT = 500  # characters, MLflow's own limit


def check_names(config: RunConfig) -> None:
    """What names folders, runs and experiments, and that nothing stands where an empty variable left a gap."""
    for key, value in {"resume": config.resume, "sweep.resume": config.sweep.resume}.items():
        if value is not None and not value.strip():
            what = "folder of the interrupted run" if key == "resume" else "id of the sweep"
            raise ConfigError(f"{key}=: is empty; give the {what}, or leave {key} out for a new run")
    if config.trust and not (config.resume or config.sweep.resume):
        raise ConfigError("trust=true: speaks of a folder; give it with resume= or sweep.resume=, or leave it out")
    names = {
        "model.name": config.model.name,
        "dataset.name": config.dataset.name,
        "precision.name": config.precision.name,
        "stack.name": config.stack.name,
    }
    for key, name in names.items():
        if not re.fullmatch(NAME, name, re.ASCII):
            raise ConfigError(
                f"{key}={name}: names folders and runs; give 1 to {MAX_NAME} letters, digits, dots, dashes"
                " and underscores of ASCII, the first of which is no dot"
            )
    experiment = config.tracking.experiment
    if not experiment.strip():
        raise ConfigError("tracking.experiment: is empty; give MLflow a name for the experiment")
    if len(experiment) > MAX_EXPERIMENT or not experiment.isprintable():
        raise ConfigError(
            f"tracking.experiment={experiment[:40]!r}...: has {len(experiment)} characters; MLflow takes up to"
            f" {MAX_EXPERIMENT}, of one line"
        )
