"""Steps: their time on device and host, scaling, limits, large models, MiniGo, evaluations and checkpoints."""
