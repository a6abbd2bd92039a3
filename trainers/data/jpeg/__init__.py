"""Decodes JPEG files ahead of the training, on the CPU without Python's GIL, or on the GPU."""

from trainers.data.jpeg.file import decode_file, read_file
from trainers.data.jpeg.reader import Decoded, JpegReader, SharedReader, generated, threads_per_process

__all__ = ["Decoded", "JpegReader", "SharedReader", "decode_file", "generated", "read_file", "threads_per_process"]
