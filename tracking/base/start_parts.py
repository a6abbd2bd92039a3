"""The parts of a start, from the command to the first step.

A part's name is in the key of its metric: see `quantities.init_part` and `quantities.compile_part`.
"""

# These and `time/compile_sec` add up to `time/init_sec`.
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
