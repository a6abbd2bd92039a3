"""The words of a command line of launch.py: what they mean to Hydra, and what is refused before it composes them."""
