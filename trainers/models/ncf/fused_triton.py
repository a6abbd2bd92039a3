"""The GPU kernels of trainers.models.ncf.fused: four kernels that store little in memory between them.

The first kernel computes the forward pass and half of the backward pass. The other three sum gradients over the
samples: of the first hidden layer's rows, of the factors, and of the second layer's weights. The first hidden layer is
recomputed wherever it is needed, because its rows are mostly in the GPU's cache. A program keeps its weights in shared
memory for all its blocks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _row(table, number, column, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return columns [k] of the rows with these numbers [n, 1]."""
    return tl.load(table + number * WIDTH + column[None, :])


@triton.jit
def _cross_entropy(logit, label):  # type: ignore[no-untyped-def]
    """Return the cross entropy and its derivative."""
    smaller = tl.exp(-tl.abs(logit))
    chance = tl.where(logit >= 0, 1.0, smaller) / (1.0 + smaller)
    return tl.maximum(logit, 0.0) - label * logit + tl.log(1.0 + smaller), chance - label


@triton.jit
def _relu(x):  # type: ignore[no-untyped-def]
    """ReLU that propagates NaN, so that the loss of such weights is not finite and ends the run."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _hidden(user_rows, item_rows, user, item, column, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return columns of the first hidden layer for users and items [n, 1]."""
    of_user = _row(user_rows, user, column, WIDE)
    return _relu(of_user + _row(item_rows, item, column, WIDE)).to(of_user.dtype)


@triton.jit(do_not_specialize=["num_samples"])
def _there_and_back(  # type: ignore[no-untyped-def]
    user_rows, item_rows, mf_user, mf_item, weight2, bias2, weight3, bias3, final, final_bias,
    users, items, weights, hidden2, slope2, slope3, slopes, sums, num_samples,
    GROUP: tl.constexpr, WIDE: tl.constexpr, MIDDLE: tl.constexpr, NARROW: tl.constexpr, FACTORS: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = WIDE // 2
    near, middle, narrow, factor = tl.arange(0, HALF), tl.arange(0, MIDDLE), tl.arange(0, NARROW), tl.arange(0, FACTORS)
    near2 = tl.load(weight2 + middle[:, None] * WIDE + near[None, :])
    far2 = tl.load(weight2 + middle[:, None] * WIDE + (HALF + near)[None, :])
    all3 = tl.load(weight3 + narrow[:, None] * MIDDLE + middle[None, :])
    losses = tl.zeros([SAMPLES], tl.float32)
    final_sum, bias3_sum = tl.zeros([NARROW], tl.float32), tl.zeros([NARROW], tl.float32)
    bias2_sum = tl.zeros([MIDDLE], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(num_samples, SAMPLES), tl.num_programs(0)):
        sample = block * SAMPLES + tl.arange(0, SAMPLES)
        valid = sample < num_samples
        user = tl.load(users + sample // GROUP, valid, 0)[:, None]
        item = tl.load(items + sample, valid, 0)[:, None]
        weight = tl.load(weights + sample // GROUP, valid, 0.0)
        second = tl.dot(_hidden(user_rows, item_rows, user, item, near, WIDE), tl.trans(near2))
        second = tl.dot(_hidden(user_rows, item_rows, user, item, HALF + near, WIDE), tl.trans(far2), second)
        second = _relu(second + tl.load(bias2 + middle)[None, :]).to(near2.dtype)
        row = sample.to(tl.int64)[:, None]
        tl.store(hidden2 + row * MIDDLE + middle[None, :], second, valid[:, None])
        third = _relu(tl.dot(second, tl.trans(all3)) + tl.load(bias3 + narrow)[None, :])
        product = _row(mf_user, user, factor, FACTORS) * _row(mf_item, item, factor, FACTORS)
        of_narrow = tl.load(final + FACTORS + narrow)[None, :]
        logit = tl.sum(product * tl.load(final + factor)[None, :], axis=1) + tl.sum(third * of_narrow, axis=1)
        loss, slope = _cross_entropy(logit + tl.load(final_bias), tl.where(sample % GROUP == 0, 1.0, 0.0))
        losses, slope = losses + weight * loss, weight * slope
        tl.store(slopes + sample, slope, valid)
        final_sum += tl.sum(slope[:, None] * third, axis=0)
        back3 = tl.where(third > 0.0, slope[:, None] * of_narrow, 0.0)
        bias3_sum += tl.sum(back3, axis=0)
        back3 = back3.to(near2.dtype)
        tl.store(slope3 + row * NARROW + narrow[None, :], back3, valid[:, None])
        back2 = tl.where(second > 0.0, tl.dot(back3, all3), 0.0)
        bias2_sum += tl.sum(back2, axis=0)
        tl.store(slope2 + row * MIDDLE + middle[None, :], back2.to(near2.dtype), valid[:, None])
    program_sums = sums + tl.program_id(0) * (2 * NARROW + MIDDLE + 1)
    tl.store(program_sums + narrow, final_sum)
    tl.store(program_sums + NARROW + narrow, bias3_sum)
    tl.store(program_sums + 2 * NARROW + middle, bias2_sum)
    tl.store(program_sums + 2 * NARROW + MIDDLE, tl.sum(losses, axis=0))


@triton.jit(do_not_specialize=["num_groups"])
def _to_rows(  # type: ignore[no-untyped-def]
    user_rows, item_rows, weight2, users, items, slope2, user_out, item_out, num_groups,
    GROUP: tl.constexpr, WIDE: tl.constexpr, MIDDLE: tl.constexpr, PART: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Add the gradients of some of the rows' columns."""
    middle = tl.arange(0, MIDDLE)
    column = tl.program_id(1) * PART + tl.arange(0, PART)
    weight = tl.load(weight2 + middle[:, None] * WIDE + column[None, :])
    for block in range(tl.program_id(0), tl.cdiv(num_groups, GROUPS), tl.num_programs(0)):
        group = block * GROUPS + tl.arange(0, GROUPS)
        valid = group < num_groups
        user = tl.load(users + group, valid, 0)[:, None]
        total = tl.zeros([GROUPS, PART], tl.float32)
        for place in range(GROUP):
            sample = group.to(tl.int64) * GROUP + place
            item = tl.load(items + sample, valid, 0)[:, None]
            slope = tl.load(slope2 + sample[:, None] * MIDDLE + middle[None, :], valid[:, None], 0.0)
            hidden = _hidden(user_rows, item_rows, user, item, column, WIDE)
            back = tl.where(hidden > 0.0, tl.dot(slope, weight), 0.0)
            tl.atomic_add(item_out + item * WIDE + column[None, :], back, valid[:, None], sem="relaxed")
            total += back
        tl.atomic_add(user_out + user * WIDE + column[None, :], total, valid[:, None], sem="relaxed")


@triton.jit(do_not_specialize=["num_groups"])
def _to_factors(  # type: ignore[no-untyped-def]
    mf_user, mf_item, final, users, items, slopes, mf_user_out, mf_item_out, sums, num_groups,
    GROUP: tl.constexpr, FACTORS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    factor = tl.arange(0, FACTORS)[None, :]
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    valid = group < num_groups
    user = tl.load(users + group, valid, 0)[:, None]
    of_factor = tl.load(final + factor)
    of_user = tl.load(mf_user + user * FACTORS + factor)
    total = tl.zeros([GROUPS, FACTORS], tl.float32)
    for place in range(GROUP):
        sample = group.to(tl.int64) * GROUP + place
        item = tl.load(items + sample, valid, 0)[:, None]
        slope = tl.load(slopes + sample, valid, 0.0)[:, None]
        total += slope * tl.load(mf_item + item * FACTORS + factor)
        tl.atomic_add(mf_item_out + item * FACTORS + factor, slope * of_factor * of_user, valid[:, None], sem="relaxed")
    tl.atomic_add(mf_user_out + user * FACTORS + factor, of_factor * total, valid[:, None], sem="relaxed")
    tl.store(sums + tl.program_id(0) * FACTORS + tl.arange(0, FACTORS), tl.sum(total * of_user, axis=0))


@triton.jit(do_not_specialize=["num_samples"])
def _to_weight(  # type: ignore[no-untyped-def]
    user_rows, item_rows, users, items, slope2, out, num_samples,
    GROUP: tl.constexpr, WIDE: tl.constexpr, MIDDLE: tl.constexpr, PART: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """Store a program's part of the second layer's gradient."""
    middle = tl.arange(0, MIDDLE)
    column = tl.program_id(1) * PART + tl.arange(0, PART)
    total = tl.zeros([MIDDLE, PART], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(num_samples, SAMPLES), tl.num_programs(0)):
        sample = block * SAMPLES + tl.arange(0, SAMPLES)
        valid = sample < num_samples
        user = tl.load(users + sample // GROUP, valid, 0)[:, None]
        item = tl.load(items + sample, valid, 0)[:, None]
        slope = tl.load(slope2 + sample.to(tl.int64)[:, None] * MIDDLE + middle[None, :], valid[:, None], 0.0)
        total = tl.dot(tl.trans(slope), _hidden(user_rows, item_rows, user, item, column, WIDE), total)
    program_out = out + tl.program_id(0) * MIDDLE * WIDE
    tl.store(program_out + middle[:, None] * WIDE + column[None, :], total)


# The fastest of the settings tried on an H100. A multiprocessor holds two programs of each kernel.
FORWARD = {"SAMPLES": 64, "num_warps": 4, "num_stages": 1}
ROWS = {"GROUPS": 64, "num_warps": 4, "num_stages": 1}
FACTORS = {"GROUPS": 32, "num_warps": 4}
WEIGHT = {"SAMPLES": 64, "num_warps": 8, "num_stages": 3}
PROGRAMS, PART = 2, 64  # programs per multiprocessor; columns of rows per program


def gradients(
    user_rows: torch.Tensor, item_rows: torch.Tensor, mf_user: torch.Tensor, mf_item: torch.Tensor,
    weight2: torch.Tensor, bias2: torch.Tensor, weight3: torch.Tensor, bias3: torch.Tensor,
    final: torch.Tensor, final_bias: torch.Tensor, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Return the weighted sum of all samples' losses, and its gradients by the first ten arguments, all float32."""
    (num_groups, group), device = items.shape, items.device
    (middle, wide), (narrow, factors) = weight2.shape, (len(bias3), mf_user.shape[1])
    sizes = {"GROUP": group, "WIDE": wide, "MIDDLE": middle}
    num_samples, programs = items.numel(), PROGRAMS * _num_processors(device)
    hidden2, slope2 = (user_rows.new_empty(num_samples, middle) for _ in range(2))
    slope3 = user_rows.new_empty(num_samples, narrow)
    slopes = torch.empty(num_samples, device=device)
    sums = torch.empty(programs, 2 * narrow + middle + 1, device=device)
    _there_and_back[(programs,)](
        user_rows, item_rows, mf_user, mf_item, weight2, bias2, weight3, bias3, final, final_bias,
        users, items, weights, hidden2, slope2, slope3, slopes, sums, num_samples,
        NARROW=narrow, FACTORS=factors, **sizes, **FORWARD,
    )  # fmt: skip
    of_rows = [torch.zeros(rows.shape, device=device) for rows in (user_rows, item_rows)]
    part = min(PART, wide)
    _to_rows[(programs, wide // part)](
        user_rows, item_rows, weight2, users, items, slope2, *of_rows, num_groups, PART=part, **sizes, **ROWS
    )
    of_factors = [torch.zeros(table.shape, device=device) for table in (mf_user, mf_item)]
    of_final = torch.empty(triton.cdiv(num_groups, FACTORS["GROUPS"]), factors, device=device)
    _to_factors[(len(of_final),)](
        mf_user, mf_item, final, users, items, slopes, *of_factors, of_final, num_groups,
        GROUP=group, FACTORS=factors, **FACTORS,
    )  # fmt: skip
    of_weight2 = torch.empty(programs, middle, wide, device=device)
    _to_weight[(programs, 2)](
        user_rows, item_rows, users, items, slope2, of_weight2, num_samples, PART=wide // 2, **sizes, **WEIGHT
    )
    of_third, of_bias3, of_bias2, loss = sums.sum(dim=0).split([narrow, narrow, middle, 1])
    return (
        loss[0].clone(), *of_rows, *of_factors, of_weight2.sum(dim=0), of_bias2.clone(),
        _sum_of_products(slope3, hidden2), of_bias3.clone(),
        torch.cat((of_final.sum(dim=0), of_third)), slopes.sum()[None],
    )  # fmt: skip


def _sum_of_products(slopes: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Return the sum of products over all samples, in float32.

    The product is scaled down, because the sum over many samples may exceed fp16, which a loss scaler cannot mend.
    """
    small = 2.0**-10
    unused = slopes.new_empty(slopes.shape[1], hidden.shape[1])  # beta=0 ignores it.
    return torch.addmm(unused, slopes.T, hidden, beta=0, alpha=small).float() / small


def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
