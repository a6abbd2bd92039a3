"""Levels for repeated looks at growing data, so that all looks together err no more often than a single one."""

from __future__ import annotations

from collections.abc import Sequence


def levels(looks: Sequence[int], alpha: float) -> list[float]:
    """The level of each look: the increase of the spending function alpha x blocks / all blocks.

    The error may be spent as a function of the information (Lan and DeMets 1983, Biometrika 70, 659-663; this function
    is the one with rho = 1 of Kim and DeMets 1987, Biometrika 74, 149-154). By Bonferroni's inequality, the sum of the
    levels bounds the error for any dependence of the looks. Their joint distribution would allow a little more.
    """
    spent = [alpha * look / looks[-1] for look in looks]
    return [total - before for total, before in zip(spent, [0.0, *spent], strict=False)]
