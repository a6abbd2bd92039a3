"""The requirements of PyTorch's wheels: the driver for their CUDA, and the GPUs that they have code for.

Sources: NVIDIA's CUDA Compatibility guide (minimum drivers); `torch.version.cuda` and `torch._C._cuda_getArchFlags()`
of 2.6.0, 2.9.1, 2.11.0 and 2.15.0 (CUDA and architectures of the default index's wheels). A release that is not in the
table is tried without a check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The oldest driver branch that runs all minor versions, by CUDA's major version.
MIN_DRIVER = {13: 580, 12: 525, 11: 450, 10: 410}
BLACKWELL, BLACKWELL_DRIVER = 10.0, 570  # compute capability, and the first driver that knows it
FORWARD_COMPATIBILITY = (
    "a data-centre GPU can also run it with the package cuda-compat (forward compatibility), which is not assumed"
)


@dataclass(frozen=True)
class Release:
    """CUDA and GPU architectures of a minor release's wheels; `capabilities` is None if they are not known."""

    cuda: str
    capabilities: tuple[float, ...] | None = None


TORCH = {
    "2.4": Release("12.1"),
    "2.5": Release("12.4"),
    "2.6": Release("12.4", (5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0)),
    "2.7": Release("12.6"),
    "2.8": Release("12.8"),
    "2.9": Release("12.8", (7.0, 7.5, 8.0, 8.6, 9.0, 10.0, 12.0)),
    "2.10": Release("12.8"),
    "2.11": Release("13.0", (7.5, 8.0, 8.6, 9.0, 10.0, 12.0)),
    "2.12": Release("13.0"),
    "2.13": Release("13.0"),
    "2.14": Release("13.0"),
    "2.15": Release("13.2", (7.5, 8.0, 8.6, 9.0, 10.0, 12.0)),
}


def release(torch: str) -> Release | None:
    """The release of a version such as 2.11.0; None if it is not in the table."""
    match = re.match(r"(\d+\.\d+)", torch)
    return TORCH.get(match[1]) if match else None


def min_driver(cuda: str, capability: float | None = None) -> int | None:
    """The oldest driver branch that runs this CUDA (on a GPU of this compute capability); None: not known."""
    least = MIN_DRIVER.get(int(cuda.split(".")[0]))
    if least is not None and capability is not None and capability >= BLACKWELL:
        return max(least, BLACKWELL_DRIVER)
    return least


def holds(capabilities: tuple[float, ...], capability: float) -> bool:
    """Whether code for these architectures runs on a GPU: for its major version, and not newer than the GPU."""
    return any(int(built) == int(capability) and built <= capability for built in capabilities)
