"""Where the ranks of a sharded training meet after they have gathered a checkpoint.

Assembling whole tensors is a collective call: if one rank fails in it, the others wait there for torch's limit, half an
hour.
"""

from __future__ import annotations

import torch

from tracking.measure.training import Ranks
from trainers.ops.sharding import sharded
from trainers.workload import Shard

LIMIT_SEC = 300.0  # in a gather, ranks drift apart by one tensor's copy to the host


class GatherFailed(RuntimeError):
    """A rank could not gather a sharded checkpoint, and others wait for it in the gather."""


class Meeting:
    """Lets all ranks of a sharded `module` meet; for others it does nothing.

    The constructor and `gathered` are collective calls.
    """

    def __init__(self, shard: Shard, module: torch.nn.Module) -> None:
        is_sharded = any(map(sharded.is_sharded, module.parameters()))
        self._rank, self._ranks = shard.rank, Ranks.connect(LIMIT_SEC) if is_sharded else Ranks()

    def gathered(self, failure: str = "") -> None:
        """Wait for the other ranks after a gather, which ended with this `failure`, if any.

        Raises GatherFailed if they do not come within LIMIT_SEC. The process then ends, and so does the run: a rank
        that waits in the gather can do nothing else.
        """
        try:
            self._ranks.gather_texts(failure)
        except RuntimeError as error:
            state = f"rank {self._rank} could not gather it ({failure}), and" if failure else "it is gathered, but"
            raise GatherFailed(
                f"checkpoint of a sharded training: {state} other ranks did not follow within {LIMIT_SEC:g} s"
            ) from error
