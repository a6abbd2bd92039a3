"""CPU time of a sample of a machine with eight GPUs in the launcher's process, with NVML simulated.

    python -m benchmarks.overhead.eight_gpus

The simulated driver answers at once, so the time is that of our code and MLflow's collectors. n is the number of
rounds, and ± the standard error over them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tracking.machine.environment.fake_nvml import HopperNvml

NUM_GPUS, NUM_ROUNDS, NUM_SAMPLES = 8, 8, 25


class EightGpus(HopperNvml):
    """GPU-0 to GPU-7."""

    def nvmlDeviceGetCount(self) -> int:
        return NUM_GPUS

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid.removeprefix("GPU-"))


def main() -> None:
    from mlflow.system_metrics.metrics import gpu_monitor

    from tracking.machine.usage import CoTenants, SystemMetrics

    sys.modules["pynvml"] = EightGpus()
    gpu_monitor.pynvml = sys.modules["pynvml"]
    with tempfile.TemporaryDirectory() as folder:
        uuids = [f"GPU-{number}" for number in range(NUM_GPUS)]
        metrics = SystemMetrics(uuids, Path(folder), neighbours=CoTenants([]))
        rounds = []
        for _ in range(NUM_ROUNDS):
            before = time.process_time()
            for _ in range(NUM_SAMPLES):
                metrics.sample()
            rounds.append(1e3 * (time.process_time() - before) / NUM_SAMPLES)
    error = statistics.stdev(rounds) / NUM_ROUNDS**0.5
    print(f"{statistics.mean(rounds):.2f} ± {error:.2f} ms of CPU time a sample (n={NUM_ROUNDS}); {metrics.failures}")


if __name__ == "__main__":
    main()
