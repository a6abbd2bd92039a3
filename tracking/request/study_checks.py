"""Refuses a study without -m, and one on real data that is not here; finds the real dataset of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from conf.launch_options import StudyConfig
from conf.schema import ConfigError, RunConfig
from tracking.base.installation import LAUNCH
from tracking.base.paths import with_home

REAL_DATA = ("imagenet", "coco", "wmt", "movielens", "fashion_mnist", "tokens")


def check_study(study: StudyConfig, overrides: Sequence[str], params: Iterable[str]) -> None:
    """Raise ConfigError for a study without -m, and for two studies at once.

    `overrides` are those of one job, `params` the keys of the study's grid. Hydra turns the grid into overrides only
    with -m, and only for one study at a time.
    """
    if study.name and not all(any(override.startswith(f"{key}=") for override in overrides) for key in params):
        raise ConfigError(
            f"+study={study.name}: a study runs as a sweep, and only one at a time. Next: {LAUNCH} -m"
            f" +study={study.name} (dry_run=true shows its jobs)"
        )


def real_dataset(config: RunConfig, overrides: Sequence[str]) -> str | None:
    """The real dataset of the model for study.data=real: the dataset of its published target.

    None without study.data, if the command line names a dataset, or if the model has none. Raises ConfigError.
    """
    if config.study.data not in ("", "real"):
        raise ConfigError(
            f"study.data={config.study.data}: no such value. Allowed: real. Next: leave it out for the models' small"
            " datasets"
        )
    if not config.study.data or any(word.startswith("dataset=") for word in overrides):
        return None
    return next((name for name in config.model.targets if name in REAL_DATA), None)


def check_data(config: RunConfig) -> None:
    """Raise ConfigError if study.data=real finds no folder of the model's real dataset on this machine."""
    path = config.dataset.path
    if not config.study.data or path is None or config.cluster.kind != "none" or config.dataset.download:
        return
    if config.dataset.name in REAL_DATA and not with_home(path).exists():
        raise ConfigError(
            f"study.data=real: {path} is not a folder with dataset={config.dataset.name} of"
            f" model={config.model.name}. Next: give data_dir=FOLDER with {Path(path).name} in it, or choose other"
            " models: model=NAME,..."
        )
