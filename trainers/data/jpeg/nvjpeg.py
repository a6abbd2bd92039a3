"""NVIDIA's JPEG decoder (nvJPEG), many images a call, on the current stream.

torchvision has an operator for it, on a stream of its own with the priority that training has. There each image's small
conversion kernel waits behind training's large ones: on an H200, 512 images of 375x375 take 23 ms alone and 320 ms
beside large matrix products. So the same library is called here, on a stream that may go first.

Interface: https://docs.nvidia.com/cuda/nvjpeg/index.html
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torchvision

BACKEND_HARDWARE, OUTPUT_RGB = 3, 3  # values of nvjpegBackend_t and nvjpegOutputFormat_t; RGB is plane after plane
COLOURS = 3
IMAGES_A_LANE = 16  # A lane has so many at least: waking another thread costs more than it saves.
NUM_LANES = 8  # Beside products of large matrices on an H200: 1 lane 2,100 images/s, 4 lanes 4,400, 8 lanes 5,500
Size = tuple[int, int]  # height, width


class Unavailable(Exception):
    """There is no such library here, or no such decoder on the GPU; says which."""


class Failed(Exception):
    """The decoder did not take a batch, which it does not say more about than a number."""


class Image(ctypes.Structure):
    """nvjpegImage_t: where each plane begins, and how many bytes its rows are apart."""

    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


@dataclass(frozen=True)
class Lane:
    """What one thread decodes its share of a batch with; waiting for one lane's kernels holds no other lane up."""

    state: c_void_p
    stream: torch.cuda.Stream


class Decoder:
    """The hardware decoder of a GPU. Raises Unavailable.

    One thread may ask for sizes while another decodes; neither is for several at once.
    """

    def __init__(self, device: torch.device, num_lanes: int = NUM_LANES) -> None:
        if device.type != "cuda":
            raise Unavailable(f"the device is {device.type}")
        self._library, self._quick = _load()
        self._device = device
        self._handle, self._header = c_void_p(), c_void_p()
        try:
            with torch.cuda.device(device):
                self._call("nvjpegCreateEx", c_int(BACKEND_HARDWARE), None, None, c_uint(0), byref(self._handle))
                self._call("nvjpegJpegStreamCreate", self._handle, byref(self._header))
            self._lanes = [self._lane() for _ in range(num_lanes)]
        except Failed as error:
            raise Unavailable(f"{torch.cuda.get_device_name(device)} has no decoder that nvJPEG can use") from error
        self._threads = ThreadPoolExecutor(num_lanes, thread_name_prefix="nvjpeg")

    def _lane(self) -> Lane:
        state = c_void_p()
        with torch.cuda.device(self._device):
            self._call("nvjpegJpegStateCreate", self._handle, byref(state))
        return Lane(state, torch.cuda.Stream(self._device, priority=-1))

    def size(self, content: torch.Tensor) -> Size | None:
        """Height and width of the image in a file's bytes, uint8 [length]; None where the decoder cannot take it."""
        length, data = c_size_t(len(content)), c_void_p(content.data_ptr())
        components, width, height, unsupported = c_uint(), c_uint(), c_uint(), c_int(1)
        try:
            self._ask("nvjpegJpegStreamParseHeader", self._handle, data, length, self._header)
            self._ask("nvjpegJpegStreamGetComponentsNum", self._header, byref(components))
            self._ask("nvjpegDecodeBatchedSupported", self._handle, self._header, byref(unsupported))
            self._ask("nvjpegJpegStreamGetFrameDimensions", self._header, byref(width), byref(height))
        except Failed:
            return None
        return (height.value, width.value) if components.value == COLOURS and not unsupported.value else None

    def decode(self, encoded: list[torch.Tensor], sizes: list[Size]) -> torch.Tensor:
        """The images, uint8, one after the other, each [3, height, width]; the host waits for them.

        Raises Failed where one of them is broken.
        """
        lengths = np.array([COLOURS * height * width for height, width in sizes])
        pixels = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=self._device)
        starts = (pixels.data_ptr() + np.cumsum(lengths) - lengths).tolist()
        # This stream may still use that memory for something else.
        before = torch.cuda.current_stream(self._device).record_event()
        num_shares = min(len(self._lanes), -(-len(encoded) // IMAGES_A_LANE))
        shares = [
            slice(*ends) for ends in pairwise(len(encoded) * share // num_shares for share in range(num_shares + 1))
        ]
        waiting = [
            self._threads.submit(self._decode_on, lane, before, encoded[share], sizes[share], starts[share])
            for lane, share in zip(self._lanes, shares, strict=False)
        ]
        wait(waiting)  # all of them, also where one fails: they read the files' bytes and write the pixels
        for future in waiting:
            future.result()
        return pixels

    def _decode_on(
        self, lane: Lane, before: torch.cuda.Event, encoded: list[torch.Tensor], sizes: list[Size], starts: list[int]
    ) -> None:
        count = len(encoded)
        images = (Image * count)()
        for image, start, (height, width) in zip(images, starts, sizes, strict=True):
            for plane in range(COLOURS):
                image.channel[plane], image.pitch[plane] = start + plane * height * width, width
        data = (c_void_p * count)(*(content.data_ptr() for content in encoded))
        num_bytes = (c_size_t * count)(*map(len, encoded))
        lane.stream.wait_event(before)
        state, stream = (self._handle, lane.state), c_void_p(lane.stream.cuda_stream)
        with torch.cuda.device(self._device):  # the current device is a thread's own
            try:
                self._call("nvjpegDecodeBatchedInitialize", *state, c_int(count), c_int(1), c_int(OUTPUT_RGB))
                self._call("nvjpegDecodeBatched", *state, data, num_bytes, images, stream)
            finally:  # What has been started goes on writing until the event.
                done = torch.cuda.Event(blocking=True)  # keeps no core busy: the CPU decodes, too
                done.record(lane.stream)
                done.synchronize()

    def _call(self, name: str, *arguments: object) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def _ask(self, name: str, *arguments: object) -> None:
        """A call of microseconds that keeps the interpreter's lock: to get it back could take milliseconds."""
        _check(name, getattr(self._quick, name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        raise Failed(f"{name}: status {status}")


def _load() -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """The library that came with torchvision, else the system's: for calls without and with the interpreter's lock."""
    folder = Path(torchvision.__file__).parent.parent / "torchvision.libs"
    for name in [*map(str, folder.glob("libnvjpeg.*")), "libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"]:
        try:
            return ctypes.CDLL(name), ctypes.PyDLL(name)
        except OSError:
            pass
    raise Unavailable("there is no libnvjpeg; it comes with torchvision for CUDA")
