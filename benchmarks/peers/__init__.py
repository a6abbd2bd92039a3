"""Ours beside peers: stock Lightning and Hydra, torchvision, plain PyTorch, GPT scripts, Go engines."""
