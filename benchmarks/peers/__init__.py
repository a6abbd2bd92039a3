"""Ours beside what a user would pick instead: stock Lightning and Hydra, torchvision, pycocotools."""
