"""What a container sees of this machine: nothing that another user's link leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, ModelConfig, OptimizerConfig, RunConfig
from tracking.jobs.worker_command.contained import mounts

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def config(path: Path, hparams: dict[str, object] | None = None) -> RunConfig:
    model = ModelConfig("m", "m:M", 1, optimizer=OptimizerConfig(0.1), hparams=hparams or {})
    return RunConfig(model=model, dataset=DatasetConfig("d", path=str(path)))


def seen(given: RunConfig, folder: Path) -> set[str]:
    return {mount.source for mount in mounts(given, folder / "run", "", folder / "kept")}


@as_root
@pytest.mark.parametrize("depth", ["the path", "above it"])
def test_data_behind_another_users_link_are_not_mounted(tmp_path: Path, depth: str) -> None:
    (tmp_path / "secret/inner").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "secret")
    data = link if depth == "the path" else link / "inner"
    assert str(data) in seen(config(data), tmp_path)  # one's own link
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=rf"dataset.path={data}: {link} is a link that another user made") as refused:
        seen(config(data), tmp_path)
    assert str(data.resolve()) in str(refused.value)
    with pytest.raises(ConfigError, match=rf"model.hparams={data}: "):
        seen(config(tmp_path / "secret", {"weights": {"file": str(data)}}), tmp_path)


def test_a_tokenizer_is_mounted(tmp_path: Path) -> None:
    given = config(tmp_path)
    given.dataset.tokenizer = str(tmp_path / "gpt2")
    assert given.dataset.tokenizer not in seen(given, tmp_path)  # it is not there
    (tmp_path / "gpt2").mkdir()
    assert given.dataset.tokenizer in seen(given, tmp_path)
    given.dataset.tokenizer = "bytes"
    seen(given, tmp_path)


def test_data_without_a_link_are_mounted_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert str(tmp_path / "data") in seen(config(tmp_path / "data"), tmp_path)
