"""Settings that break the closed division's rules are refused before the training."""

from __future__ import annotations

import pytest

from conf.schema import ConfigError
from tests.support.composing import EIGHT_GPUS, composed
from tracking.request import checks

IMAGENET = ("dataset=imagenet", "dataset.path=/data", "target_set=mlperf_v07", "gpus=1")
COCO = ("dataset=coco", *IMAGENET[1:])


@pytest.mark.parametrize(
    ("overrides", "targets"),
    [
        (("model=resnet50", *IMAGENET), {"accuracy": 0.759}),
        (("model=ssd", *COCO), {"box_map": 0.23}),
        (("model=maskrcnn", *COCO, "batch_size=16"), {"box_map": 0.377, "mask_map": 0.339}),
    ],
)
def test_the_targets_are_those_of_v07(overrides: tuple[str, ...], targets: dict[str, float]) -> None:
    assert checks.check_run(composed(overrides), EIGHT_GPUS).targets() == targets


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("model=vgg", "target_set=mlperf_v07"), "has no targets for model=vgg. Allowed: resnet50"),
        (("model=ssd", "target_set=mlperf_v07"), "are on coco, not shapes"),
        (("model=maskrcnn", *COCO), "0.01. Allowed: a multiple of 0.02"),
        (("model=resnet50", *IMAGENET, "model.hparams.depth=18"), "model.hparams.depth=18: breaks the rules"),
        (("model=resnet50", *IMAGENET, "model.optimizer.weight_decay=3e-5"), "0.0001 times a power of 2"),
        (("model=ssd", *COCO, "model.hparams.decay_epochs=[43,55]"), "multiples of 4 and of 5"),
        (("model=maskrcnn", *COCO, "batch_size=16", "model.hparams.num_proposals=1500"), "a multiple of 1,000"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_is_not_allowed_is_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checks.check_run(composed(overrides), EIGHT_GPUS)
    assert words in str(caught.value)
