"""Parts of a run's time, by their names in keys of metrics (see `quantities.init_part`, `compile_part`, `goodput`)."""

# From the command to the first step: these and `time/compile_sec` add up to `time/init_sec`.
INIT_PARTS = {
    "launch": "launching",
    "import": "importing",
    "process_group": "process group",
    "data": "data",
    "model": "model",
    "trainer": "trainer",
    "rest": "the rest",
}
# These add up to `time/compile_sec`.
COMPILE_PARTS = {
    "trace": "tracing",
    "backend": "generating code",
    "autotune": "autotuning",
    "graph_capture": "capturing CUDA graphs",
    "warmup": "warming up",
}
# From a run's submission to its end.
GOODPUT_PARTS = {
    "train": "training",
    "queue": "queue",
    "start": "start",
    "compile": "compiling and warming up",
    "data": "waiting for data",
    "selfplay": "self-play",
    "gate": "matches of the gate",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "lost": "lost to interruptions",
    "end": "test, saving and upload at the end",
    "idle": "idle",
}
# What limits a run (see `quantities.bottleneck`).
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
