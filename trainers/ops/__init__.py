"""Building blocks of models that PyTorch lacks or computes more slowly, one module each.

Triton kernels are in modules of their own (*_triton); the module without the suffix computes the same on a CPU.
"""
