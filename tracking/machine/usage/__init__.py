"""Samples the machine while a run computes there: utilisation, and co-tenants.

Samples are taken beside the worker, never in it. A sensor that fails is left out of the sample.
"""

from tracking.machine.usage.co_tenants import CoTenants, compute_processes_of
from tracking.machine.usage.system_metrics import SystemMetrics, SystemMetricsThread

__all__ = ["CoTenants", "SystemMetrics", "SystemMetricsThread", "compute_processes_of"]
