"""Refuses arguments beside resume= or sweep.resume= that would change a configuration: a run keeps its own."""

from __future__ import annotations

from collections.abc import Sequence

from conf.schema import NOT_MEASURED, ConfigError

# Options that a resumed run may change; all others come from its folder.
BESIDE_RESUME = (
    "trust", "dry_run", "timeout_sec", "tracking.offline", "tracking.upload_wait_sec",
    "tracking.system_metrics_interval_sec",
)  # fmt: skip
OF_DEVICES = ("gpus", "cpu_processes", "nodes", "strategy")  # A run's figures are of one value of each.
# Options and groups that a resumed sweep may change: they do not change what is measured.
BESIDE_SWEEP_RESUME = sorted({*NOT_MEASURED} - {"profile"})

# A resumed sweep keeps these options as they were. -m adds jobs to it, and the second pair may hold for these.
OF_A_NEW_SWEEP = ("sweep.until_decided", "sweep.shuffle")
OF_ADDED_JOBS = ("sweep.paired", "sweep.warm_up")


def check_resumed(words: Sequence[str], is_multirun: bool) -> None:
    """Raise ConfigError for an option that a resumed run or sweep does not take from the command line.

    Checked before Hydra composes: `model.hparams.width` may be an option of the run, but not of the default model.
    """
    keys = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("hydra.")}
    if resumed := keys.pop("resume", None):
        if is_multirun:
            raise ConfigError(
                f"{resumed}: continues one run. Next: leave -m out, or continue a sweep with sweep.resume=<id>"
            )
        if foreign := [key for key in keys if key not in BESIDE_RESUME]:
            word, of_devices = keys[foreign[0]], foreign[0] in OF_DEVICES
            why = ", since its rates and cost are of the same devices and strategy" if of_devices else ""
            raise ConfigError(
                f"{resumed} {word}: a resumed run keeps the configuration in its folder{why}. Allowed beside"
                f" resume: {', '.join(BESIDE_RESUME)}. Next: leave {foreign[0]} out"
                + (f", or begin a new run with {word}" if of_devices else "")
            )
    resumed = keys.get("sweep.resume")
    decided = OF_A_NEW_SWEEP if is_multirun else OF_A_NEW_SWEEP + OF_ADDED_JOBS
    if resumed and (word := next((keys[key] for key in decided if key in keys), "")):
        raise ConfigError(
            f"{resumed} {word}: has no effect, since a sweep goes on as it began. Next: leave it out, or begin a new"
            f" sweep with {word}"
        )
    if resumed and not is_multirun:
        foreign = [key for key in keys if key.partition(".")[0] not in BESIDE_SWEEP_RESUME]
        if foreign:
            raise ConfigError(
                f"{resumed} {' '.join(keys[key] for key in foreign)}: the sweep's jobs keep their configuration."
                f" Allowed beside sweep.resume: {', '.join(BESIDE_SWEEP_RESUME)}. Next: leave {foreign[0]} out, or add"
                " jobs to the sweep with -m"
            )
