"""Go: kernels of the rules beside candidates."""
