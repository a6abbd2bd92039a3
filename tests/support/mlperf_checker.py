"""MLPerf's own compliance checker."""

from __future__ import annotations

from pathlib import Path


def complaints(path: Path) -> list[str]:
    """What the checker finds wrong with a log, by v0.7's rules for training."""
    from mlperf_logging.compliance_checker import mlp_compliance as compliance

    checker = compliance.make_checker("training", "0.7.0", quiet=False, werror=True)
    compliance.enqueued_configs.clear()
    compliance.main(str(path), "training_0.7.0/common.yaml", checker)
    return [*checker.not_overwritable, *checker.overwritable.values()]
