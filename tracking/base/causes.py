"""What limits a run, by the name in its metric's key (see `quantities.bottleneck`)."""

CAUSES = {
    "data": "waiting for data",
    "host": "the GPU without work from the host",
    "exchange": "exchange of gradients",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "dram": "traffic of the GPU's memory",
    "tensor": "tensor cores",
    "fp32": "cores for fp32",
    "power": "a clock that power or heat kept down",
    "kernels": "kernels that do not fill the GPU",
    "latency": "kernels that reach no ceiling",
    "gc": "Python's garbage collection",
    "imbalance": "one rank slower than the others",
    "selfplay": "self-play",
    "gate": "matches of the gate",
    "update": "the update of the weights",
    "processor": "the cores of the CPU",
    "neighbours": "other processes on its cores",
    "unknown": "not known",
}
