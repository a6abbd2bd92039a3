"""Steps: their time on device and host, scaling, limits, MiniGo, evaluations and checkpoints."""
