"""Instance masks on the device: outlines to grids, grids to training targets, predictions to run lengths.

Pixel i covers [i, i + 1) and has its centre at i + 0.5, as in COCO's boxes and polygons. Targets and pasted masks both
follow this, so neither is shifted or stretched by part of a pixel.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

TINY = 1e-6  # least extent of a box, against division by zero
CHUNK_PIXELS = 1 << 22  # pixels pasted at a time; each takes some 120 bytes


def rasterise(edges: torch.Tensor, owner: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """Return a grid over each box, uint8 [I, size, size]: 1 for cells whose centre is inside the outline, else 0.

    edges: [E, 4] x0 y0 x1 y1, directed, in the boxes' coordinates. A point with a winding number other than zero is
    inside. owner: int64 [E], the box that an edge belongs to; edges of owner I are padding. boxes: [I, 4] x0 y0 x1 y1.

    The algorithm scans each row of cells: an edge that crosses the row adds its direction to the winding numbers right
    of the crossing. Shapes are fixed, and the host does not wait for the device.
    """
    num_boxes = boxes.shape[0]
    with torch.autocast(edges.device.type, enabled=False):
        box = boxes.float()[owner.clamp(max=num_boxes - 1)]
        scale = size / (box[:, 2:] - box[:, :2]).clamp(min=TINY)
        begin, end = (edges[:, :2] - box[:, :2]) * scale, (edges[:, 2:] - box[:, :2]) * scale
        (x0, y0), (x1, y1) = (point.unsqueeze(2).unbind(1) for point in (begin, end))
        row = torch.arange(size, device=edges.device)
        centre = row + 0.5
        direction = (y0 <= centre).int() - (y1 <= centre).int()
        direction = direction * (owner < num_boxes).unsqueeze(1)
        crossing = x0 + (centre - y0) / torch.where(direction != 0, y1 - y0, 1.0) * (x1 - x0)
        column = (crossing - 0.5).clamp(0, size).ceil().long()  # the first centre at or right of the crossing
        cell = (owner.clamp(max=num_boxes - 1).unsqueeze(1) * size + row) * (size + 1) + column
        steps = torch.zeros(num_boxes * size * (size + 1), dtype=torch.int32, device=edges.device)
        steps = steps.scatter_add(0, cell.flatten(), direction.flatten())
        winding = steps.view(num_boxes, size, size + 1)[:, :, :size].cumsum(dim=2, dtype=torch.int32)
        return (winding != 0).to(torch.uint8)


def mask_targets(
    grids: torch.Tensor, boxes: torch.Tensor, rois: torch.Tensor, instance: torch.Tensor, size: int = 28
) -> torch.Tensor:
    """Return how much of each bin of a region its instance covers: float32 [P, size, size], 0 to 1.

    grids: [I, R, R], over the instances' boxes [I, 4], from `rasterise`; outside of its box an instance covers nothing.
    rois: [P, 4], divided into size x size bins. instance: int64 [P]. R = 2 * size is fine enough for regions of any
    overlap.

    It equals RoIAlign (He et al. 2017, arXiv:1703.06870) of the full mask, except that the average over a bin's samples
    is replaced by its limit, the integral: a matrix product with the overlaps of bins and cells along each axis.
    """
    with torch.autocast(grids.device.type, enabled=False):
        box, regions = boxes.float()[instance], rois.float()
        rows = _overlaps(regions[:, 1], regions[:, 3], box[:, 1], box[:, 3], size, grids.shape[1])
        columns = _overlaps(regions[:, 0], regions[:, 2], box[:, 0], box[:, 2], size, grids.shape[2])
        return rows @ grids[instance].float() @ columns.transpose(1, 2)


def _overlaps(
    low: torch.Tensor, high: torch.Tensor, box_low: torch.Tensor, box_high: torch.Tensor, num_bins: int, num_cells: int
) -> torch.Tensor:
    """Return, for one axis, the share of each bin of [low, high] in each cell of the box: [P, num_bins, num_cells]."""
    scale = num_cells / (box_high - box_low).clamp(min=TINY)
    start, step = (low - box_low) * scale, (high - low) * scale / num_bins
    borders = start.unsqueeze(1) + step.unsqueeze(1) * torch.arange(num_bins + 1, device=low.device)
    cells = torch.arange(num_cells, device=low.device)
    shared = torch.minimum(borders[:, 1:, None], cells + 1) - torch.maximum(borders[:, :-1, None], cells)
    return shared.clamp(min=0) / step.clamp(min=TINY)[:, None, None]


def paste(probabilities: torch.Tensor, boxes: torch.Tensor, sizes: torch.Tensor) -> list[bytes]:
    """Paste masks into their images and return them as COCO's compressed run lengths: K strings.

    A pixel belongs to the mask if its probability is above 0.5. Probabilities are interpolated bilinearly, and towards
    zero at the boxes' borders. The device computes only pixels within boxes. Only strings are copied to the host, which
    waits for the device a few times every CHUNK_PIXELS.

    Args:
        probabilities: [K, M, M], over the boxes
        boxes: [K, 4], x0 y0 x1 y1 in pixels of the images
        sizes: int [K, 2], height and width of each mask's image
    """
    with torch.autocast(probabilities.device.type, enabled=False):
        boxes, sizes = boxes.float(), sizes.to(boxes.device, torch.int64)
        # Interpolation towards zero gives at most 0.5 at the border, so no pixel outside of the box is above 0.5.
        first = (boxes[:, :2] - 0.5).ceil().long().clamp(min=0)
        last = torch.minimum((boxes[:, 2:] - 0.5).ceil().long(), sizes.flip(1))
        windows = torch.cat([first, (last - first).clamp(min=0)], dim=1)  # x, y, width, height
        cost = windows[:, 2] * (windows[:, 3] + probabilities.shape[1])
        masks: list[bytes] = []
        for begin, end in pairwise(_chunks(cost.tolist())):
            part = slice(begin, end)
            masks += _paste(probabilities[part].float(), boxes[part], windows[part], sizes[part])
        return masks


def _chunks(num_pixels: list[int]) -> list[int]:
    """Return the starts of chunks, and the end of the last one. A chunk has up to CHUNK_PIXELS, or a single box."""
    starts, pixels = [0], 0
    for position, number in enumerate(num_pixels):
        if pixels and pixels + number > CHUNK_PIXELS:
            starts.append(position)
            pixels = 0
        pixels += number
    return [*starts, len(num_pixels)] if num_pixels else []


def _paste(probabilities: torch.Tensor, boxes: torch.Tensor, windows: torch.Tensor, sizes: torch.Tensor) -> list[bytes]:
    # First enumerate every column of every window, as COCO counts column by column, then every pixel of every column.
    owner, x = _numbered(torch.where(windows[:, 3] > 0, windows[:, 2], 0))
    column_x, column_y, height = windows[owner, 0] + x, windows[owner, 1], windows[owner, 3]
    column, y = _numbered(height)
    inside = _interpolate(probabilities, boxes, owner, column_x, column_y, column, y) > 0.5
    # A run continues in the next column if the window is as high as the image.
    goes_on = torch.ones_like(inside)
    goes_on[height.cumsum(0) - height] = (x > 0) & (height == sizes[owner, 0])
    linked = F.pad(inside[1:] & inside[:-1] & goes_on[1:], (1, 1))
    starts = (inside & ~linked[: len(inside)]).nonzero().squeeze(1)
    ends = (inside & ~linked[1 : len(inside) + 1]).nonzero().squeeze(1)
    column_position = column_x * sizes[owner, 0] + column_y  # start of the column in the image's order
    borders = torch.stack([column_position[column[at]] + y[at] for at in (starts, ends)], dim=1)
    borders[:, 1] += 1
    return compress(*_run_lengths(borders, owner[column[starts]], sizes.prod(dim=1)))


def _numbered(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the group of each member, and its number in the group from 0, int64; groups have `counts` [n] members."""
    owner = torch.repeat_interleave(counts)
    return owner, torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]


def _interpolate(
    probabilities: torch.Tensor,
    boxes: torch.Tensor,
    owner: torch.Tensor,
    column_x: torch.Tensor,
    column_y: torch.Tensor,
    column: torch.Tensor,
    y: torch.Tensor,
) -> torch.Tensor:
    """Return the probabilities at the centres of pixels, float32 [pixels].

    owner, column_x, column_y: [columns], each column's mask and topmost pixel. column, y: [pixels], each pixel's column
    and its distance from the topmost pixel.
    """
    side = probabilities.shape[1]
    scale = side / (boxes[:, 2:] - boxes[:, :2]).clamp(min=TINY)
    # Coordinates in cells of the padded mask, counted from the centre of the padding: 0.5 to side + 0.5.
    u = (column_x + 0.5 - boxes[owner, 0]) * scale[owner, 0] + 0.5
    v = (column_y + 0.5 - boxes[owner, 1]) * scale[owner, 1] + 0.5
    strips = F.pad(probabilities, (1, 1, 1, 1)).transpose(1, 2).flatten(0, 1)  # one row for each column of each mask
    left = u.long().clamp(0, side)
    strip = owner * (side + 2) + left
    strips = torch.lerp(strips[strip], strips[strip + 1], (u - left).unsqueeze(1)).flatten()
    v = v[column] + y * scale[owner, 1][column]
    upper = v.long().clamp(0, side)
    cell = column * (side + 2) + upper
    return torch.lerp(strips[cell], strips[cell + 1], v - upper)


def _run_lengths(
    borders: torch.Tensor, owner: torch.Tensor, num_pixels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the run lengths, int64 [n], of K masks with num_pixels [K], and the start of each mask, int64 [K + 1].

    borders: int64 [runs, 2], the first position of a run within the mask, and the first one after it. owner: int64
    [runs], sorted.
    """
    num_runs = torch.zeros_like(num_pixels).scatter_add(0, owner, torch.ones_like(owner))
    last = torch.zeros_like(num_pixels).scatter_reduce(0, owner, borders[:, 1], "amax")
    has_tail = last < num_pixels  # A mask that reaches the last pixel does not end in a run of background.
    starts = F.pad((2 * num_runs + has_tail).cumsum(0), (1, 0))
    num_tails_before = has_tail.cumsum(0) - has_tail.long()
    place = torch.arange(2 * len(owner), device=owner.device) + num_tails_before[owner].repeat_interleave(2)
    positions = num_pixels.new_empty(int(starts[-1]))
    positions[starts[1:] - 1] = num_pixels
    positions[place] = borders.flatten()
    lengths = positions.diff(prepend=positions.new_zeros(1))
    lengths[starts[:-1]] = positions[starts[:-1]]
    return lengths, starts


def compress(lengths: torch.Tensor, starts: torch.Tensor) -> list[bytes]:
    """Return COCO's strings of K masks. Mask k has the run lengths, int64 [n], from starts[k] to starts[k + 1].

    A character holds five bits, lowest first, and a sixth bit if more characters follow. From the fourth on, a run is
    stored as its difference to the run two before it (cocodataset/cocoapi, common/maskApi.c, rleToString).
    """
    index = torch.arange(len(lengths), device=lengths.device)
    index = index - torch.repeat_interleave(starts[:-1], starts.diff(), output_size=len(lengths))
    stored = lengths - torch.where(index > 2, lengths.roll(2), 0)
    num_digits = torch.ones_like(stored)
    for digit in range(1, 7):  # 32 bits
        num_digits += (stored < -(1 << (5 * digit - 1))) | (stored >= 1 << (5 * digit - 1))
    ends = F.pad(num_digits.cumsum(0), (1, 0))
    num_bytes = int(ends[-1])
    characters = torch.empty(num_bytes + 1, dtype=torch.uint8, device=lengths.device)  # the last one is discarded
    for digit in range(7):
        more = (num_digits > digit + 1) * 32
        place = torch.where(num_digits > digit, ends[:-1] + digit, num_bytes)
        characters[place] = (((stored >> (5 * digit)) & 31) + more + 48).to(torch.uint8)
    joined = characters.cpu().numpy().tobytes()
    return [joined[begin:end] for begin, end in pairwise(ends[starts].tolist())]
