"""The parts of the time from a run's submission to its end, by the name in the key (see `quantities.goodput`)."""

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
