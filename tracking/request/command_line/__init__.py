"""The arguments of launch.py: what they mean to Hydra, and what is refused before Hydra composes them."""
