"""What models are built from and that PyTorch lacks or computes slower: a module each.

Triton kernels stand in modules of their own, beside what is computed where there is no GPU.
"""
