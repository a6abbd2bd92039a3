"""The process that has all the data to itself, on the CPU, as most tests of loaders want it."""

from __future__ import annotations

import torch

from trainers.data.loading.types import Shard

CPU = torch.device("cpu")
ALONE = Shard(0, 1, CPU)
