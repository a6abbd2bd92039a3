"""Ours beside peers: stock Lightning and Hydra, torchvision, plain PyTorch, pycocotools, GPT scripts, Go engines."""
