"""What joins data and modules: the view that a module asks for."""

from __future__ import annotations

from trainers.data.crop import SquareView
from trainers.data.digits import digits
from trainers.data.synthetic_images import synthetic
from trainers.workload import TrialModule, viewed


def test_data_are_cut_as_the_module_asks_where_they_leave_that_open() -> None:
    module, data, in_memory = TrialModule(), synthetic(8), digits()
    assert viewed(data, module) is data  # it does not ask
    module.view = SquareView(image_size=8)
    assert viewed(data, module).image_size == (8, 8)
    assert data.image_size == (224, 224)  # what was given is left as it was
    assert viewed(in_memory, module) is in_memory  # they are as they are
