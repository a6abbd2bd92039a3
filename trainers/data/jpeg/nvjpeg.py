"""NVIDIA's JPEG decoder (nvJPEG), many images a call, on the current stream.

torchvision's operator for it uses a stream with the priority of training. Each image's small conversion kernel then
waits behind training's large kernels: on an H200, 512 images of 375x375 take 23 ms alone and 320 ms beside large matrix
products. So this module calls the same library on a stream of higher priority.

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

BACKEND_HARDWARE, OUTPUT_RGB = 3, 3  # values of nvjpegBackend_t and nvjpegOutputFormat_t; RGB is planar
COLOURS = 3
IMAGES_A_LANE = 16  # least images for a lane: for fewer, waking another thread costs more than it saves
NUM_LANES = 8  # Beside products of large matrices on an H200: 1 lane 2,100 images/s, 4 lanes 4,400, 8 lanes 5,500
Size = tuple[int, int]  # height, width


class Unavailable(Exception):
    """The library, or the GPU's decoder, is missing; the message says which."""


class Failed(Exception):
    """The decoder refused a batch; it only returns a status number."""


class Image(ctypes.Structure):
    """nvjpegImage_t: the pointer to each plane, and the bytes from one row to the next."""

    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


@dataclass(frozen=True)
class Lane:
    """A thread's state and stream for its share of a batch; lanes do not wait for each other's kernels."""

    state: c_void_p
    stream: torch.cuda.Stream


class Decoder:
    """The hardware decoder of a GPU. Raises Unavailable on a GPU without one.

    `size` and `decode` may run at the same time, each in one thread.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise Unavailable(f"the device is {device.type}")
        self._library, self._quick = _load()
        self._device = device
        self._handle, self._header = c_void_p(), c_void_p()
        try:
            with torch.cuda.device(device):
                self._call("nvjpegCreateEx", c_int(BACKEND_HARDWARE), None, None, c_uint(0), byref(self._handle))
                self._call("nvjpegJpegStreamCreate", self._handle, byref(self._header))
            self._lanes = [self._lane() for _ in range(NUM_LANES)]
        except Failed as error:
            raise Unavailable(f"{torch.cuda.get_device_name(device)} has no decoder that nvJPEG can use") from error
        self._threads = ThreadPoolExecutor(NUM_LANES, thread_name_prefix="nvjpeg")

    def _lane(self) -> Lane:
        state = c_void_p()
        with torch.cuda.device(self._device):
            self._call("nvjpegJpegStateCreate", self._handle, byref(state))
        return Lane(state, torch.cuda.Stream(self._device, priority=-1))

    def size(self, content: torch.Tensor) -> Size | None:
        """Return height and width of the image in a file's bytes, uint8 [length]; None if it cannot be decoded."""
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
        """Return the images, uint8, one after the other, each [3, height, width]; the host waits for them.

        Raises Failed if one of them is broken.
        """
        lengths = np.array([COLOURS * height * width for height, width in sizes])
        pixels = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=self._device)
        starts = (pixels.data_ptr() + np.cumsum(lengths) - lengths).tolist()
        # Work queued on this stream may still use that memory.
        before = torch.cuda.current_stream(self._device).record_event()
        num_shares = min(len(self._lanes), -(-len(encoded) // IMAGES_A_LANE))
        shares = [
            slice(*ends) for ends in pairwise(len(encoded) * share // num_shares for share in range(num_shares + 1))
        ]
        waiting = [
            self._threads.submit(self._decode_on, lane, before, encoded[share], sizes[share], starts[share])
            for lane, share in zip(self._lanes, shares, strict=False)
        ]
        wait(waiting)  # Wait for all, even if one fails: they read the files' bytes and write the pixels.
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
        with torch.cuda.device(self._device):  # Each thread has its own current device.
            try:
                self._call("nvjpegDecodeBatchedInitialize", *state, c_int(count), c_int(1), c_int(OUTPUT_RGB))
                self._call("nvjpegDecodeBatched", *state, data, num_bytes, images, stream)
            finally:  # Kernels that were launched write until the event.
                done = torch.cuda.Event(blocking=True)  # Blocking leaves the core to the CPU's decoding.
                done.record(lane.stream)
                done.synchronize()

    def _call(self, name: str, *arguments: object) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def _ask(self, name: str, *arguments: object) -> None:
        """Make a call of microseconds without releasing the GIL: getting it back may take milliseconds."""
        _check(name, getattr(self._quick, name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        raise Failed(f"{name}: status {status}")


def _load() -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """Return torchvision's library, else the system's, for calls without and with the GIL."""
    folder = Path(torchvision.__file__).parent.parent / "torchvision.libs"
    for name in [*map(str, folder.glob("libnvjpeg.*")), "libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"]:
        try:
            return ctypes.CDLL(name), ctypes.PyDLL(name)
        except OSError:
            pass
    raise Unavailable("libnvjpeg is missing. Next: install torchvision for CUDA")
