"""Reading JPEG files: what Pillow reads, whatever the file is, and a named refusal of what is broken."""

from __future__ import annotations

import io
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conf.schema import ConfigError
from tests.trainers.jpegs import picture, write
from trainers.data.jpeg import file
from trainers.data.jpeg import reader as jpeg_reader
from trainers.data.jpeg.nvjpeg import Failed
from trainers.data.jpeg.reader import Decoded, JpegReader
from trainers.data.loading.types import Shard

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def images(decoded: Decoded) -> list[np.ndarray]:
    """Each as uint8 [h, w, 3]."""
    pixels, pictures = decoded.pixels.cpu().numpy(), []
    table = zip(decoded.offsets.tolist(), decoded.sizes.tolist(), decoded.interleaved.tolist(), strict=True)
    for offset, (height, width), interleaved in table:
        flat = pixels[offset : offset + 3 * height * width]
        by_plane = flat.reshape(3, height, width).transpose(1, 2, 0)
        pictures.append(flat.reshape(height, width, 3) if interleaved else by_plane)
    return pictures


def several(folder: Path) -> list[Path]:
    return [
        write(folder / "plain.jpg", picture(30, 41)),
        write(folder / "grey.jpg", picture(17, 8, 1), mode="L"),
        write(folder / "cmyk.jpg", picture(20, 24, 2), mode="CMYK"),
        write(folder / "progressive.jpg", picture(40, 33, 3), progressive=True),
        write(folder / "png in disguise.JPEG", picture(9, 12, 4), format="PNG"),
        write(folder / "one_pixel.jpg", picture(1, 1, 5)),
        write(folder / "no_subsampling.jpg", picture(31, 15, 6), subsampling=0),
    ]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_reads_what_pillow_reads_in_order(tmp_path: Path, num_threads: int) -> None:
    paths = several(tmp_path)
    decoded = JpegReader(CPU, num_threads).read([*paths, str(paths[0])])
    expected = [np.asarray(Image.open(path).convert("RGB")) for path in [*paths, paths[0]]]
    assert decoded.pixels.dtype == torch.uint8
    assert len(decoded.pixels) == sum(image.size for image in expected)
    assert decoded.sizes.tolist() == decoded.host_sizes.tolist() == [list(image.shape[:2]) for image in expected]
    for image_read, image in zip(images(decoded), expected, strict=True):
        assert np.array_equal(image_read, image)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_python_takes_no_part_in_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_threads: int) -> None:
    """Its lock is what the thread that launches kernels would wait for: a call a batch, not several a file."""
    large = write(tmp_path / "large.jpg", picture(301, 211, 9))
    paths = [*(path for path in several(tmp_path) if "png" not in path.name), large]
    expected = [np.asarray(Image.open(path).convert("RGB")) for path in paths]

    def taken(path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(file, "decode_file", taken)
    pixels, sizes = file.decode_files(paths, num_threads)
    assert sizes.tolist() == [list(image.shape[:2]) for image in expected]
    assert np.array_equal(pixels.numpy(), np.concatenate([image.ravel() for image in expected]))


def test_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    path = write(tmp_path / "turned.jpg", picture(10, 20), exif=exif)
    assert JpegReader(CPU, 1).read([path]).host_sizes.tolist() == [[10, 20]]


def break_file(path: Path, how: str) -> Path:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        cut = {"empty": 0, "header only": 100, "truncated": len(content) // 2, "without its end": len(content) - 2}
        path.write_bytes(b"no image at all" if how == "text" else content[: cut[how]])
    return path


BROKEN = {
    "missing": r"cannot be read \(No such file",
    "folder": r"cannot be read \(is not a regular file",
    "pipe": r"cannot be read \(is not a regular file",
    "empty": "is empty",
    "header only": "cannot be decoded",
    "truncated": "cannot be decoded as an image (?i:.*truncated)",
    "without its end": "cannot be decoded as an image (?i:.*truncated)",
    "text": r"cannot be decoded as an image \(no complete header\)",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_named(tmp_path: Path, how: str) -> None:
    good = write(tmp_path / "good.jpg", picture(30, 40))
    bad = break_file(write(tmp_path / "bad.jpg", picture(30, 40)), how)
    with pytest.raises(ConfigError, match=rf"bad\.jpg {BROKEN[how]}.*copy the original again"):
        JpegReader(CPU, 2).read([good, bad, good])


@pytest.mark.parametrize("kind", ["EPS", "TIFF", "PPM", "ICO"])
def test_pillow_opens_no_other_format_under_a_jpegs_name(tmp_path: Path, kind: str) -> None:
    """It knows fifty formats, and runs Ghostscript to read one."""
    bad = write(tmp_path / "odd.jpg", picture(32, 32), format=kind)
    with Image.open(bad) as opened:
        assert opened.format == kind
    with pytest.raises(
        ConfigError, match=r"odd\.jpg cannot be decoded as an image .*Allowed: JPEG, PNG, GIF, BMP, WEBP"
    ):
        JpegReader(CPU, 1).read([bad])


@pytest.mark.parametrize("kind", file.FORMATS)
def test_what_is_met_under_a_jpegs_name_is_read(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "other.jpg", picture(32, 48), format=kind)
    assert JpegReader(CPU, 1).read([path]).host_sizes.tolist() == [[32, 48]]


GREY = np.add.outer(np.arange(48), np.arange(64)) * 2 % 256


# Largest mean difference of a read value from the written one, by format and mode. Palettes and lossy formats differ.
HELD = {
    "JPEG": {"L": 2, "RGB": 3, "CMYK": 3, "YCbCr": 3},
    "PNG": {"1": 130, "L": 0, "LA": 0, "P": 45, "RGB": 0, "RGBA": 0, "I;16": 0},
    "GIF": {"L": 0, "P": 45},
    "BMP": {"1": 130, "L": 0, "P": 45, "RGB": 0, "RGBA": 0},
    "WEBP": {"RGB": 4, "RGBA": 4},
}


@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for kind, modes in HELD.items() for mode in modes])
def test_every_mode_of_every_format_is_read_by_its_range(tmp_path: Path, kind: str, mode: str) -> None:
    path, grey = tmp_path / "grey.jpg", Image.fromarray(GREY.astype(np.uint8))
    held = Image.fromarray((GREY * 257).astype(np.uint16)) if mode == "I;16" else grey.convert("RGB").convert(mode)
    if mode == "RGBA":
        held.putalpha(128)  # Pillow writes RGB where nothing shows through.
    held.save(path, format=kind)
    pixels = file.decode_file(path)
    assert np.abs(pixels.astype(int) - GREY[:, :, None]).mean() <= HELD[kind][mode]
    assert abs(pixels.mean() - GREY.mean()) < 4


def test_colour_and_grey_of_16_bits_agree(tmp_path: Path) -> None:
    values = (GREY * 257).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "grey.png")
    assert np.array_equal(file.decode_file(tmp_path / "grey.png"), np.repeat(GREY[:, :, None], 3, axis=2))
    decoded = JpegReader(CPU, 1).read([tmp_path / "grey.png"])
    assert decoded.pixels.float().mean() == pytest.approx(GREY.mean())


@pytest.mark.parametrize("mode", ["F", "I"])
def test_values_of_no_known_range_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match=f"its mode is {mode}, whose values have no known range"):
        file.rgb(Image.new(mode, (4, 4)))


def with_header(path: Path, height: int, width: int) -> Path:
    """Change what the file says of its size; the pixels stay few."""
    content = bytearray(path.read_bytes())
    frame = next(content.index(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in content)
    content[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"exif": b"Exif\0\0" + bytes(60_000)}, {"format": "PNG"}]
)
def test_an_image_is_refused_by_its_header_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    small = write(tmp_path / "small.jpg", picture(16, 16))
    large = write(tmp_path / "large.jpg", picture(40, 50), **options)
    JpegReader(CPU, 2, max_image_pixels=2000).read([small, large])
    reader = JpegReader(CPU, 2, max_image_pixels=1999)
    with pytest.raises(ConfigError, match=r"large.jpg is 40 pixels high and 50 wide, .*dataset.max_image_pixels=1999"):
        reader.read([small, large])
    if options.get("format") != "PNG":
        with_header(large, 65_500, 65_500)
        with pytest.raises(ConfigError, match=r"large.jpg is 65,500 pixels high .*=178956970; raise it"):
            JpegReader(CPU, 2).read([small, large])


def test_a_header_that_holds_no_size_is_left_to_pillow(tmp_path: Path) -> None:
    path = write(tmp_path / "padded.jpg", picture(16, 20))
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes(3) + content[20:])  # libjpeg skips what is no marker
    assert JpegReader(CPU, 1).read([path]).host_sizes.tolist() == [[16, 20]]
    path.write_bytes(content[:2] + b"\xff" * 3 + content[2:])
    assert JpegReader(CPU, 1).read([path]).host_sizes.tolist() == [[16, 20]]
    path.write_bytes(content[:4])
    with pytest.raises(ConfigError, match=r"padded.jpg cannot be decoded"):
        JpegReader(CPU, 1).read([path])


def test_the_first_thread_s_error_leaves_the_reader_usable(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jpg", picture(30, 40))
    reader = JpegReader(CPU, 2)
    with pytest.raises(ConfigError):
        reader.read([tmp_path / "missing.jpg"] * 5)
    assert reader.read([good] * 3).host_sizes.tolist() == [[30, 40]] * 3


def test_options_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.decode=tpu.*auto, gpu, cpu"):
        JpegReader(CPU, 1, "tpu")
    with pytest.raises(ConfigError, match=r"dataset\.decode=gpu: the device is cpu.*dataset\.decode=cpu"):
        JpegReader(CPU, 1, "gpu")
    with pytest.raises(ConfigError, match=r"dataset\.num_threads=0"):
        JpegReader(CPU, 0)
    JpegReader(CPU, 1, "auto")


class FakeDecoder:
    """Plays the GPU's: takes colour JPEGs, makes them darker by one, so that they are told apart, and fails once."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.fails = False

    def size(self, content: torch.Tensor) -> tuple[int, int] | None:
        header = Image.open(io.BytesIO(content.numpy().tobytes()))
        return (header.height, header.width) if (header.mode, header.format) == ("RGB", "JPEG") else None

    def decode(self, encoded: list[torch.Tensor], sizes: list[tuple[int, int]]) -> torch.Tensor:
        self.asked.append(len(encoded))
        if self.fails:
            raise Failed("nvjpegDecodeBatched: status 3")
        pictures = [np.asarray(Image.open(io.BytesIO(file.numpy().tobytes()))) - np.uint8(1) for file in encoded]
        assert [pixels.shape[:2] for pixels in pictures] == sizes
        return torch.from_numpy(np.concatenate([pixels.transpose(2, 0, 1).ravel() for pixels in pictures]))


def test_what_the_gpu_cannot_take_the_cpu_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = FakeDecoder()
    monkeypatch.setattr(jpeg_reader, "Decoder", lambda device: decoder)
    reader = JpegReader(CPU, 2, "gpu")
    paths = several(tmp_path)

    def check(decoded: Decoded, on_cpu: list[bool]) -> None:
        assert decoded.interleaved.tolist() == on_cpu
        for image_read, path, by_cpu in zip(images(decoded), paths, on_cpu, strict=True):
            assert np.array_equal(image_read, np.asarray(Image.open(path).convert("RGB")) - np.uint8(not by_cpu))

    odd = ("grey", "cmyk", "png")
    check(reader.read(paths), [path.name.startswith(odd) for path in paths])
    assert decoder.asked == [4]
    first, second = reader.read_ahead([paths, paths])
    for batch in (first, second):
        check(batch, [path.name.startswith(odd) for path in paths])
    decoder.fails = True
    with caplog.at_level(logging.INFO, jpeg_reader.__name__):
        check(reader.read(paths), [True] * len(paths))
    assert "4 images are decoded on the CPU: nvjpegDecodeBatched: status 3" in caplog.text
    decoder.asked.clear()
    # A truncated file does not reach it: it would make something of it.
    with pytest.raises(ConfigError, match=r"(?i)truncated"):
        reader.read([break_file(paths[0], "truncated")])
    assert decoder.asked == []


class OneAtATime(FakeDecoder):
    """As nvJPEG is: whatever it keeps between calls is for one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: set[str] = set()

    def alone(self, what: str, seconds: float) -> None:
        assert what not in self.busy, f"{what} for two threads at once"
        self.busy.add(what)
        time.sleep(seconds)
        self.busy.remove(what)

    def size(self, content: torch.Tensor) -> tuple[int, int] | None:
        self.alone("size", 0.001)
        return super().size(content)

    def decode(self, encoded: list[torch.Tensor], sizes: list[tuple[int, int]]) -> torch.Tensor:
        self.alone("decode", 0.01)
        return super().decode(encoded, sizes)


def test_an_evaluation_may_begin_while_files_are_still_read_for_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jpeg_reader, "Decoder", lambda device: OneAtATime())
    reader = JpegReader(CPU, 2, "gpu")
    paths = several(tmp_path)[:2]
    expected = reader.read(paths).pixels

    def read(number: int) -> list[torch.Tensor]:
        return [decoded.pixels for decoded in reader.read_ahead([paths] * 8)]

    with ThreadPoolExecutor(4) as loaders:
        for batches in loaders.map(read, range(4)):
            torch.testing.assert_close(torch.stack(batches), expected.expand(8, -1))


def test_many_threads_decode_for_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's decoder waits for room between training's kernels; the CPU's threads do not."""
    monkeypatch.setattr(jpeg_reader, "Decoder", lambda device: FakeDecoder())
    paths = [write(tmp_path / "plain.jpg", picture(30, 41))]
    for decode, num_threads, on_cpu in (("auto", 7, False), ("auto", 8, True), ("gpu", 8, False), ("cpu", 7, True)):
        assert JpegReader(CPU, num_threads, decode).read(paths).interleaved.tolist() == [on_cpu]


@pytest.mark.parametrize(
    ("cores", "processes", "threads"), [(1, 1, 1), (2, 1, 1), (2, 4, 1), (16, 1, 14), (64, 4, 14), (12, 2, 4)]
)
def test_threads_leave_cores_for_what_else_there_is_to_do(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, threads: int
) -> None:
    monkeypatch.setattr(jpeg_reader.os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert jpeg_reader.threads_per_process(processes) == threads


def test_other_machines_processes_take_no_cores_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert Shard(0, 8, CPU).num_local == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert Shard(0, 8, CPU).num_local == 4


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("decode", ["gpu", "cpu"])
def test_reads_onto_the_gpu(tmp_path: Path, decode: str) -> None:
    paths = several(tmp_path)
    odd = ("cmyk.jpg", "png in disguise.JPEG")
    kept = [path for path in paths if path.name not in odd]
    reader = JpegReader(torch.device("cuda", 0), 2, decode)
    for batch in (paths, kept, kept[:1] * 20):
        decoded = reader.read(batch)
        assert decoded.pixels.is_cuda
        on_cpu = [decode == "cpu" or path.name in ("grey.jpg", "progressive.jpg", *odd) for path in batch]
        assert decoded.interleaved.tolist() == on_cpu
        for image_read, path in zip(images(decoded), batch, strict=True):
            # The two decoders blow up halved colour channels in different ways (seen on an H200: 4.0 levels).
            difference = image_read.astype(int) - np.asarray(Image.open(path).convert("RGB"))
            assert np.abs(difference).mean() < 6
    with pytest.raises(ConfigError, match=r"plain\.jpg cannot be decoded"):
        reader.read([kept[1], break_file(paths[0], "truncated")])


@pytest.mark.gpu
@needs_gpu
def test_the_gpus_decoder_is_not_given_an_image_above_the_limit(tmp_path: Path) -> None:
    small = write(tmp_path / "small.jpg", picture(30, 41))
    large = with_header(write(tmp_path / "large.jpg", picture(30, 41)), 65_500, 65_500)
    reader = JpegReader(torch.device("cuda", 0), 2, "gpu")
    reader.read([small])
    free = torch.cuda.mem_get_info(0)[0]
    with pytest.raises(ConfigError, match=r"large.jpg is 65,500 pixels high .*=178956970; raise it"):
        reader.read([small, large])
    assert free - torch.cuda.mem_get_info(0)[0] < 2**30  # the image would take 12 GiB
    raised = JpegReader(torch.device("cuda", 0), 2, "gpu", max_image_pixels=30 * 41)
    assert raised.read([small]).sizes.tolist() == [[30, 41]]
    with pytest.raises(ConfigError, match=r"small.jpg is 30 pixels high"):
        JpegReader(torch.device("cuda", 0), 2, "gpu", max_image_pixels=30 * 41 - 1).read([small])


@pytest.mark.gpu
@needs_gpu
def test_two_loaders_at_once_onto_the_gpu(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    batches = [[write(tmp_path / f"{seed}.jpg", picture(300, 400, seed))] * 64 for seed in range(8)]
    reader = JpegReader(device, 4, "gpu")
    expected = [int(reader.read(batch).pixels.long().sum()) for batch in batches]

    def read(number: int) -> list[int]:
        return [int(decoded.pixels.long().sum()) for decoded in reader.read_ahead(batches)]

    with ThreadPoolExecutor(2) as loaders:
        assert list(loaders.map(read, range(2))) == [expected] * 2


@pytest.mark.gpu
@needs_gpu
def test_reads_that_follow_each_other_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The decoder writes from another stream into memory that earlier work may still be reading."""
    device = torch.device("cuda", 0)
    paths = [write(tmp_path / f"{seed}.jpg", picture(300, 400, seed)) for seed in range(8)]
    for decode in ("gpu", "cpu"):
        reader = JpegReader(device, 4, decode)
        expected = [int(reader.read([path] * 16).pixels.long().sum()) for path in paths]
        sums = []
        for path in paths * 3:
            torch.cuda._sleep(10_000_000)
            sums.append(reader.read([path] * 16).pixels.long().sum())
        assert torch.stack(sums).tolist() == expected * 3
