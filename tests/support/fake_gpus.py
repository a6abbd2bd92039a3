"""launch.py on eight GPUs that are not here: python -m tests.support.fake_gpus NAME GIB CAPABILITY WORDS..."""

from __future__ import annotations

import sys

import launch
from tracking.machine.environment import nvml


def main() -> int:
    name, memory, capability, *words = sys.argv[1:]
    gpus = [nvml.Gpu(index, name, f"GPU-{index}", int(memory) * 2**30, float(capability)) for index in range(8)]
    nvml.visible_gpus = lambda: gpus
    nvml.trouble = lambda: None
    sys.argv[1:] = words
    return launch.main()


if __name__ == "__main__":
    sys.exit(main())
