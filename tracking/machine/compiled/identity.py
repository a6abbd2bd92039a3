"""What compiled code is made for: another stack or GPU cannot use it."""

from __future__ import annotations

from collections.abc import Mapping

STACK, GPU, CPU = "env.stack_id", "env.gpu", "env.cpu"
KEYS = (STACK, "env.python", GPU, CPU)  # Python too, since compiled code is pickled
# What a stack's hash is made of, for the words of a refusal.
DESCRIBED = ("env.torch", "env.cuda", "env.driver", "env.cudnn", "env.nccl", "env.libraries", "env.image")


def identity(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a fingerprint that compiled code depends on.

    Raises ValueError for tags that lack the stack, the GPU or the CPU.
    """
    if missing := [key for key in KEYS if key not in tags]:
        raise ValueError(f"{', '.join(missing)}: not known on this machine, so it cannot be told for what it compiles")
    return {key: tags[key] for key in (*KEYS, *DESCRIBED) if key in tags}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """In what two identities differ, in words; empty where compiled code of one is of use to the other."""
    keys = [key for key in dict.fromkeys((*ours, *theirs)) if theirs.get(key) != ours.get(key)]
    if ours[GPU] != "none":  # Most is code of the GPU then. What is not is left out.
        keys = [key for key in keys if key != CPU]
    named = [key for key in keys if key != STACK] or keys
    sides = ((key, theirs.get(key, "unknown"), ours.get(key, "unknown")) for key in named)
    return "; ".join(f"{key} is {there} there and {here} here" for key, there, here in sides)
