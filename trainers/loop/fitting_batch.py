"""Which batch would fit, where the one that was asked for does not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from trainers.loop.batch_size import group_size
from trainers.ops.sharding import sharded
from trainers.workload import Data, InTokens, TrialModule

PROBE = 2  # A second try has twice as many samples, and the difference is what a sample takes.
USABLE = 0.9  # The rest of the device's memory is the allocator's waste and what others hold.


@contextmanager
def naming_the_batch_that_fits(
    module: TrialModule, data: Data, batch_size: int, device: torch.device, context: Callable[[], object]
) -> Iterator[None]:
    """Have an OutOfMemoryError in the block say about what batch size would fit, where that can be told.

    `context` makes the context that training steps run in, which sets their precision.
    """
    try:
        yield
        return
    except torch.OutOfMemoryError as error:
        message = str(error).splitlines()[0]
    key, size = module.held_at_once(batch_size)
    if any(map(sharded.is_sharded, module.parameters())):  # No process can try a step alone.
        raise torch.OutOfMemoryError(
            f"{key}={size} does not fit into the GPU's memory; give a smaller one, or more GPUs. {message}"
        )
    # Out of the handler, whose traceback holds the step's tensors.
    try:
        fits = module.largest_held(batch_that_fits(module, data, device, context), batch_size)
    except Exception:  # What holds the memory need not have given it back, or a module's step may not be tried so.
        advice = "give a smaller one"
    else:
        advice = f"about {key}={fits} would fit" if fits else "no batch would fit"
        if fits >= size:
            advice = "a step of it would by itself; give a smaller one, or compile=false, which keeps less"
    raise torch.OutOfMemoryError(f"{key}={size} does not fit into the GPU's memory; {advice}. {message}")


def batch_that_fits(module: TrialModule, data: Data, device: torch.device, context: Callable[[], object]) -> int:
    """An estimate, from the peaks of two small training steps on this process alone; not compiled, which takes less.

    What was compiled is gone afterwards: CUDA graphs would hold their memory meanwhile.
    """
    module.drop_compiled()
    torch.compiler.reset()
    group = group_size(data)
    probe = PROBE * (data.longest if isinstance(data, InTokens) else group)
    peaks = [_peak(module, data, size, device, context) for size in (probe, 2 * probe)]
    of_a_sample = (peaks[1] - peaks[0]) / probe
    total = torch.cuda.get_device_properties(device).total_memory
    fits = int((USABLE * total - (peaks[0] - probe * of_a_sample)) / max(of_a_sample, 1))
    multiple = group * (8 if fits >= 8 * group else 1)
    return max(0, fits // multiple * multiple)


def _peak(module: TrialModule, data: Data, batch_size: int, device: torch.device, context: Callable[[], object]) -> int:
    module.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    batch = data.example_batches(batch_size, device)[0]
    with torch.compiler.set_stance("force_eager"), context():  # type: ignore[attr-defined]
        loss = module.training_step(batch, 0)
    loss = loss["loss"] if isinstance(loss, Mapping) else loss
    assert isinstance(loss, torch.Tensor)
    # Gradients that accumulate would call DDP, which may be amid the step that failed, and which other processes join.
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    torch.autograd.grad(loss, trained, allow_unused=True)
    return torch.cuda.max_memory_allocated(device)
