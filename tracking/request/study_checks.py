"""Refuses a study that is not run as one, and says on which dataset its models train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conf.launch_options import StudyConfig
from conf.schema import ConfigError, RunConfig
from tracking.base.installation import LAUNCH

REAL_DATA = ("imagenet", "coco", "wmt", "movielens", "fashion_mnist", "tokens")


def check_study(study: StudyConfig, overrides: Sequence[str], params: Iterable[str]) -> None:
    """Raise ConfigError for a study whose grid was not gone through.

    `overrides` are those of one job, `params` the keys of the grid: Hydra turns the second into the first only with -m,
    and only for one study at a time.
    """
    if study.name and not all(any(override.startswith(f"{key}=") for override in overrides) for key in params):
        raise ConfigError(
            f"+study={study.name}: a study is a sweep, and one at a time: {LAUNCH} -m +study={study.name}"
            " (dry_run=true shows its jobs)"
        )


def real_dataset(config: RunConfig, overrides: Sequence[str]) -> str | None:
    """The dataset that study.data=real asks for: the one that the model's published target is on.

    None where nothing asks for it, a dataset is named, or the model has none. Raises ConfigError for another word.
    """
    if config.study.data not in ("", "real"):
        raise ConfigError(f"study.data={config.study.data}: may be real; leave it out for the models' small datasets")
    if not config.study.data or any(word.startswith("dataset=") for word in overrides):
        return None
    return next((name for name in config.model.targets if name in REAL_DATA), None)
