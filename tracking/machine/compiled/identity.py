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
        raise ValueError(
            f"{', '.join(missing)}: not known on this machine, so compiled code cannot be identified. Next: see"
            " `fingerprint`"
        )
    return {key: tags[key] for key in (*KEYS, *DESCRIBED) if key in tags}


def difference(of_export: Mapping[str, str], of_stack: Mapping[str, str]) -> str:
    """The differences of two identities as text; empty if they can share compiled code."""
    keys = [key for key in dict.fromkeys((*of_stack, *of_export)) if of_export.get(key) != of_stack.get(key)]
    if of_stack[GPU] != "none":  # Then most code is for the GPU. Code for the CPU is left out.
        keys = [key for key in keys if key != CPU]
    named = [key for key in keys if key != STACK] or keys
    sides = ((key, of_export.get(key, "unknown"), of_stack.get(key, "unknown")) for key in named)
    return "; ".join(f"{key} is {exported} there and {local} here" for key, exported, local in sides)
