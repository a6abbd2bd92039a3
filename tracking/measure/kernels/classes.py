"""The class of a kernel, by its name and by the phase of the step in which it was launched.

Names come from cuBLAS (`nvjet_`, `*gemm*`), cuDNN (`*xmma_fprop*`, `cudnn::`), CUTLASS, NCCL (`ncclDevKernel_*`),
PyTorch (`at::native::*`) and Inductor. Inductor's names are `triton_`, a kind (`poi` pointwise, `red` and `per`
reductions, `tem` templates) and the fused operators. On a CPU the names are operators' (`aten::*`). The first matching
rule decides; without a match the class is `other`.
"""

from __future__ import annotations

import re

OPTIMIZER, COLLECTIVE, OTHER = "optimizer", "collective", "other"
CLASSES = {
    COLLECTIVE: "collectives of NCCL and Gloo",
    OPTIMIZER: "the optimizer's step",
    "copy": "copies and changes of layout",
    "attention": "attention",
    "convolution": "convolutions",
    "matrix product": "matrix products",
    "normalisation": "normalisation",
    "elementwise": "elementwise operations",
    "reduction": "reductions",
    OTHER: "all else",
}
# Copies come first, since their names may hold words of computing, such as nchwToNhwc of a convolution.
RULES = [
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        (COLLECTIVE, r"nccl|^gloo:|c10d::|all_?reduce|reduce_scatter|all_?gather"),
        (
            "copy",
            r"memcpy|memset|nchwToNhwc|nhwcToNchw|AddPadding|direct_copy|CatArray|copy_kernel|transpose(?!d)"
            r"|^aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|fill_|zero_)$",
        ),
        ("attention", r"flash|fmha|attention|sdpa"),
        ("elementwise", r"^triton_poi_"),
        ("normalisation", r"^triton_(red|per)_.*norm|(batch|layer|group|instance|rms)_?norm|cudnn::bn|bn_(fw|bw)"),
        (
            "convolution",
            r"fprop|dgrad|wgrad|winograd|implicit|conv(?!ert)|cudnn.*(engine|gemm)|^triton_tem_.*conv",
        ),
        (
            "matrix product",
            r"gemm|gemv|nvjet|cutlass|cublas|splitk|xmma|^triton_tem_"
            r"|^_(there_and_back|to_rows|to_weight)$"  # NCF's, mostly products
            r"|^aten::(mm|bmm|addmm|baddbmm|matmul|linear|dot|mv)$|mkldnn_linear",
        ),
        ("reduction", r"^triton_(red|per)_|reduce|softmax|^aten::(sum|mean|max|min|amax|amin|argmax|all|any|norm)$"),
        (
            "elementwise",
            r"elementwise|vectorized|pointwise|^(loop|wrapped)_\w*|_fusion"  # the latter are XLA's
            r"|^aten::_?(foreach_)?(add|sub|mul|div|neg|pow|sqrt|exp|log|relu|threshold|threshold_backward|sigmoid|tanh"
            r"|clamp|clamp_min|where|eq|ne|lt|le|gt|ge|lerp|addcmul|addcdiv|dropout|gelu|silu|hardtanh)_?(_backward)?$",
        ),
    )
]


def class_of(name: str, phase: str) -> str:
    """One of CLASSES: collectives in any phase, `optimizer` for all else in the optimizer's step, else by name."""
    if RULES[0][1].search(name):
        return COLLECTIVE
    if phase == OPTIMIZER:
        return OPTIMIZER
    return next((kind for kind, pattern in RULES[1:] if pattern.search(name)), OTHER)
