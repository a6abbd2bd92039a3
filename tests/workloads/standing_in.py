"""NCF whose data are in the making for as long as a test lasts, with stand-ins of their shapes and of others."""

from __future__ import annotations

import torch

from trainers.data.ratings import SyntheticRatings
from trainers.data.ratings.synthetic import ITEMS, example_batch
from trainers.models.ncf.module import Ncf
from trainers.workload import Batch, Data, Workload

FEW_USERS = 1000


class FewUsers(SyntheticRatings):
    num_users = FEW_USERS

    def batch(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        return example_batch(batch_size, FEW_USERS, ITEMS, device, seed)


def in_the_making(size: int = 0) -> Data:
    raise AssertionError("a helper process builds on the stand-in")


DATA = {"synthetic": in_the_making}
ALIKE = Workload(module=Ncf, data=DATA, stand_ins={"synthetic": SyntheticRatings})
OTHER = Workload(module=Ncf, data=DATA, stand_ins={"synthetic": FewUsers})
