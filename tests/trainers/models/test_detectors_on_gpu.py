"""Detectors on a GPU: in a step the host never waits, and compiled steps find and learn what others do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.composing import composed
from tests.trainers import synchronization
from trainers.data.detection.synthetic import generated_batch
from trainers.loop.build import make_data, make_module
from trainers.models.maskrcnn import rpn
from trainers.models.maskrcnn.module import MaskRcnn
from trainers.workload import Batch, load_workload

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
DEVICE = torch.device("cuda")
OPTIONS = ["dataset=synthetic", "dataset.num_classes=3", "dataset.num_objects=8", "batch_size=2", "gpus=1"]


def made(model: str) -> tuple[Any, list[Batch]]:
    """A small module on the device, and a batch of each canvas that it may come to see."""
    config = composed([f"model={model}", f"recipe={model}_cpu", *OPTIONS])
    workload = load_workload(config)
    data: Any = make_data(workload, config.dataset)
    torch.manual_seed(1)
    module: Any = make_module(workload, data, config)
    batches = []
    for canvas in module.view.canvases:
        batches.append(generated_batch(2, canvas, data.num_objects, data.num_classes, module.view.outlines, DEVICE))
    return module.to(DEVICE), batches


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("model", ["ssd", "maskrcnn"])
def test_a_step_never_waits_for_the_gpu(model: str, compiled: bool) -> None:
    module, batches = made(model)
    if compiled:
        module.compile_hot_path()
        batches = batches[:2]  # each canvas has graphs of its own, and their compiling takes long
    optimizer = module.configure_optimizers()

    def steps() -> None:
        for batch in batches:
            with torch.autocast("cuda", torch.bfloat16):
                module.train().training_step(batch, 0).backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    module.eval().validation_step(batch, 0)

    for _ in range(3):  # compiles, allocates, records graphs
        steps()
    with synchronization.refused():
        for _ in range(3):
            steps()


def losses_and_gradients(module: MaskRcnn, batch: Batch) -> tuple[dict[str, float], torch.Tensor]:
    torch.manual_seed(3)  # draws the same regions
    module.zero_grad()
    losses = module.losses(batch)
    torch.stack([*losses.values()]).sum().backward()
    gradients = [parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None]
    return {name: float(loss.detach()) for name, loss in losses.items()}, torch.cat(gradients)


def test_compiled_steps_of_mask_rcnn_learn_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two canvases in turns. The third time, their recorded graphs are replayed.

    All learn from the same proposals, since the last bits decide between two nearly equal ones.
    """
    module, batches = made("maskrcnn")
    module.train()
    proposals: dict[int, Any] = {}  # by canvas
    propose = rpn.propose

    def propose_once(logits: Any, deltas: Any, level_anchors: Any, sizes: torch.Tensor, *nums: int) -> Any:
        canvas = id(level_anchors[0])
        if canvas not in proposals:
            proposals[canvas] = propose(logits, deltas, level_anchors, sizes, *nums)
        return proposals[canvas]

    monkeypatch.setattr(rpn, "propose", propose_once)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), torch._inductor.config.patch(fallback_random=True):
        expected = [losses_and_gradients(module, batch) for batch in batches[:2]]
        module.compile_hot_path()
        for _ in range(3):
            for batch, (losses, gradients) in zip(batches, expected, strict=False):
                compiled, others = losses_and_gradients(module, batch)
                assert compiled == pytest.approx(losses, rel=0.02)
                assert torch.nn.functional.cosine_similarity(others, gradients, dim=0) > 0.98
