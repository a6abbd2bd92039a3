"""Instance masks on the device: outlines to grids, grids to training targets, predictions to run lengths.

Pixel i covers [i, i + 1) and has its centre at i + 0.5, as in COCO's boxes and polygons, here and in both directions:
neither targets nor pasted masks are shifted or stretched by part of a pixel.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

TINY = 1e-6  # in place of the extent of a box that has none
CHUNK_PIXELS = 1 << 22  # pasted at a time, at some 120 bytes each


def rasterise(edges: torch.Tensor, owner: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """Which cells of a grid over each box have their centre inside the box's outline: uint8 [I, size, size].

    edges: [E, 4] x0 y0 x1 y1, directed, in the boxes' coordinates; inside is where the winding number is not zero.
    owner: int64 [E], the box that an edge belongs to; edges of owner I are padding. boxes: [I, 4] x0 y0 x1 y1.

    A scan line along each row of cells: every edge that crosses it adds its direction to the winding numbers to the
    right of the crossing. Shapes are fixed and nothing waits for the device.
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
        column = (crossing - 0.5).clamp(0, size).ceil().long()  # the first centre that is not left of it
        cell = (owner.clamp(max=num_boxes - 1).unsqueeze(1) * size + row) * (size + 1) + column
        steps = torch.zeros(num_boxes * size * (size + 1), dtype=torch.int32, device=edges.device)
        steps = steps.scatter_add(0, cell.flatten(), direction.flatten())
        winding = steps.view(num_boxes, size, size + 1)[:, :, :size].cumsum(dim=2, dtype=torch.int32)
        return (winding != 0).to(torch.uint8)


def mask_targets(
    grids: torch.Tensor, boxes: torch.Tensor, rois: torch.Tensor, instance: torch.Tensor, size: int = 28
) -> torch.Tensor:
    """How much of each bin of every region an instance covers: float32 [P, size, size], 0 to 1.

    grids: [I, R, R], over the instances' boxes [I, 4], as `rasterise` makes them; nothing is covered outside of a box.
    rois: [P, 4], cut into size x size bins. instance: int64 [P]. R of 2 * size does justice to regions of any overlap.

    The same as RoIAlign (He et al. 2017, arXiv:1703.06870) of the full mask, with the average over a bin's samples
    replaced by its limit, the integral; that is a product with the overlaps of bins and cells along either axis.
    """
    with torch.autocast(grids.device.type, enabled=False):
        box, regions = boxes.float()[instance], rois.float()
        rows = _overlaps(regions[:, 1], regions[:, 3], box[:, 1], box[:, 3], size, grids.shape[1])
        columns = _overlaps(regions[:, 0], regions[:, 2], box[:, 0], box[:, 2], size, grids.shape[2])
        return rows @ grids[instance].float() @ columns.transpose(1, 2)


def _overlaps(
    low: torch.Tensor, high: torch.Tensor, box_low: torch.Tensor, box_high: torch.Tensor, num_bins: int, num_cells: int
) -> torch.Tensor:
    """Along one axis, the share of each bin of [low, high] in each cell of the box: [P, num_bins, num_cells]."""
    scale = num_cells / (box_high - box_low).clamp(min=TINY)
    start, step = (low - box_low) * scale, (high - low) * scale / num_bins
    borders = start.unsqueeze(1) + step.unsqueeze(1) * torch.arange(num_bins + 1, device=low.device)
    cells = torch.arange(num_cells, device=low.device)
    shared = torch.minimum(borders[:, 1:, None], cells + 1) - torch.maximum(borders[:, :-1, None], cells)
    return shared.clamp(min=0) / step.clamp(min=TINY)[:, None, None]


def paste(probabilities: torch.Tensor, boxes: torch.Tensor, sizes: torch.Tensor) -> list[bytes]:
    """COCO's compressed run lengths of the masks that probabilities above 0.5 make in their images: K strings.

    probabilities: [K, M, M] over boxes [K, 4] x0 y0 x1 y1 in pixels of images of sizes int [K, 2], height and width;
    interpolated bilinearly, towards zero at the boxes' borders. Only the windows of the boxes are looked at, on the
    device, and only strings come back; it is waited for a few times each CHUNK_PIXELS (a larger box goes alone).
    """
    with torch.autocast(probabilities.device.type, enabled=False):
        boxes, sizes = boxes.float(), sizes.to(boxes.device, torch.int64)
        # Interpolation towards zero makes 0.5 at most at the border: no pixel outside of the box can be above.
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
    """Where chunks of CHUNK_PIXELS at most, or of one box, begin; and the end."""
    starts, pixels = [0], 0
    for position, number in enumerate(num_pixels):
        if pixels and pixels + number > CHUNK_PIXELS:
            starts.append(position)
            pixels = 0
        pixels += number
    return [*starts, len(num_pixels)] if num_pixels else []


def _paste(probabilities: torch.Tensor, boxes: torch.Tensor, windows: torch.Tensor, sizes: torch.Tensor) -> list[bytes]:
    # First every column of every window, as COCO counts column by column, and then every pixel of every column.
    owner, x = _numbered(torch.where(windows[:, 3] > 0, windows[:, 2], 0))
    column_x, column_y, height = windows[owner, 0] + x, windows[owner, 1], windows[owner, 3]
    column, y = _numbered(height)
    inside = _interpolate(probabilities, boxes, owner, column_x, column_y, column, y) > 0.5
    # A run goes on from one column to the next where the window is as high as the image.
    goes_on = torch.ones_like(inside)
    goes_on[height.cumsum(0) - height] = (x > 0) & (height == sizes[owner, 0])
    linked = F.pad(inside[1:] & inside[:-1] & goes_on[1:], (1, 1))
    starts = (inside & ~linked[: len(inside)]).nonzero().squeeze(1)
    ends = (inside & ~linked[1 : len(inside) + 1]).nonzero().squeeze(1)
    column_position = column_x * sizes[owner, 0] + column_y  # Columns in the order of the image.
    borders = torch.stack([column_position[column[at]] + y[at] for at in (starts, ends)], dim=1)
    borders[:, 1] += 1
    return compress(*_run_lengths(borders, owner[column[starts]], sizes.prod(dim=1)))


def _numbered(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For counts [n] of members, which of the n each member belongs to, and its number there from zero on: int64."""
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
    """Probabilities at the centres of pixels, float32 [pixels].

    owner, column_x, column_y: [columns], each one's mask and topmost pixel. column, y: [pixels], y from that one on.
    """
    side = probabilities.shape[1]
    scale = side / (boxes[:, 2:] - boxes[:, :2]).clamp(min=TINY)
    # In cells of the padded mask, from the centre of the padding on: 0.5 to side + 0.5.
    u = (column_x + 0.5 - boxes[owner, 0]) * scale[owner, 0] + 0.5
    v = (column_y + 0.5 - boxes[owner, 1]) * scale[owner, 1] + 0.5
    strips = F.pad(probabilities, (1, 1, 1, 1)).transpose(1, 2).flatten(0, 1)  # a row for each column of each mask
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
    """Run lengths, int64 [n], of K masks of num_pixels [K] and where each mask's begin, int64 [K + 1].

    borders: int64 [runs, 2], the first position of a run inside and the first after it; owner: int64 [runs], sorted.
    """
    num_runs = torch.zeros_like(num_pixels).scatter_add(0, owner, torch.ones_like(owner))
    last = torch.zeros_like(num_pixels).scatter_reduce(0, owner, borders[:, 1], "amax")
    has_tail = last < num_pixels  # a mask that reaches the last pixel has no run outside at its end
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
    """COCO's strings of K masks from their run lengths int64 [n]; mask k has those from starts[k] to starts[k + 1].

    Five bits a character, lowest first, and a sixth that says that more follow; from the fourth on, a run is stored as
    its difference to the one two before it (cocodataset/cocoapi, common/maskApi.c, rleToString).
    """
    index = torch.arange(len(lengths), device=lengths.device)
    index = index - torch.repeat_interleave(starts[:-1], starts.diff(), output_size=len(lengths))
    stored = lengths - torch.where(index > 2, lengths.roll(2), 0)
    num_digits = torch.ones_like(stored)
    for digit in range(1, 7):  # 32 bits
        num_digits += (stored < -(1 << (5 * digit - 1))) | (stored >= 1 << (5 * digit - 1))
    ends = F.pad(num_digits.cumsum(0), (1, 0))
    num_bytes = int(ends[-1])
    characters = torch.empty(num_bytes + 1, dtype=torch.uint8, device=lengths.device)  # the last takes what is no digit
    for digit in range(7):
        more = (num_digits > digit + 1) * 32
        place = torch.where(num_digits > digit, ends[:-1] + digit, num_bytes)
        characters[place] = (((stored >> (5 * digit)) & 31) + more + 48).to(torch.uint8)
    joined = characters.cpu().numpy().tobytes()
    return [joined[begin:end] for begin, end in pairwise(ends[starts].tolist())]
