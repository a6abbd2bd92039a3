"""Jobs before they start: their folders and owners, sweeps, prices, and resumed runs.

All jobs of a sweep are planned before its first job runs.
"""

from tracking.jobs.plan import (
    earlier_runs,
    ordering,
    price,
    resume,
    run_setup,
    sweep,
    sweep_cost,
    sweep_report,
    sweep_summary,
    sweep_view,
    sweep_waste,
)
from tracking.jobs.plan.job import Job, exit_code
from tracking.jobs.plan.ordering import planned
from tracking.jobs.plan.repair import repair
from tracking.jobs.plan.resume import own_folder
from tracking.jobs.plan.sweep import DEFINITION

__all__ = [
    "DEFINITION", "Job", "earlier_runs", "exit_code", "ordering", "own_folder", "planned", "price", "repair", "resume",
    "run_setup", "sweep", "sweep_cost", "sweep_report", "sweep_summary", "sweep_view", "sweep_waste",
]  # fmt: skip
