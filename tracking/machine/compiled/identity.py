"""The environment for which code was compiled. Another stack or GPU cannot use the code."""

from __future__ import annotations

from collections.abc import Mapping

STACK, GPU, CPU = "env.stack_id", "env.gpu", "env.cpu"
KEYS = (STACK, "env.python", GPU, CPU)  # Python too, since compiled code is pickled
# The parts of a stack's hash, for messages.
DESCRIBED = ("env.torch", "env.cuda", "env.driver", "env.cudnn", "env.nccl", "env.libraries", "env.image")


def identity(tags: Mapping[str, str]) -> dict[str, str]:
    """The fingerprint tags that compiled code depends on. Raises ValueError if one of KEYS is missing."""
    if missing := [key for key in KEYS if key not in tags]:
        raise ValueError(f"{', '.join(missing)}: not known on this machine, so compiled code cannot be identified")
    return {key: tags[key] for key in (*KEYS, *DESCRIBED) if key in tags}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The differences of two identities as text; empty if they can share compiled code."""
    keys = [key for key in dict.fromkeys((*ours, *theirs)) if theirs.get(key) != ours.get(key)]
    if ours[GPU] != "none":  # Then most code is for the GPU. Code for the CPU is left out.
        keys = [key for key in keys if key != CPU]
    named = [key for key in keys if key != STACK] or keys
    sides = ((key, theirs.get(key, "unknown"), ours.get(key, "unknown")) for key in named)
    return "; ".join(f"{key} is {there} there and {here} here" for key, there, here in sides)
