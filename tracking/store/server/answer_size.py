"""A limit on the size of an answer, since a few kilobytes of gzip can unpack to gigabytes and fill the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from requests import Response

MAX_BYTES = 134_217_728  # five times MLflow's largest answer, a page of 1,000 runs with hundreds of metrics each
CHUNK_BYTES = 16_384  # before unpacking, which may multiply it by a thousand


class TooLargeAnswer(OSError):
    """An answer is larger than any of MLflow's and was not read to its end."""


def read_bounded(response: Response) -> Response:
    """The response of a request with `stream=True`, with its whole content read. Raises TooLargeAnswer."""
    content = bytearray()
    for chunk in response.iter_content(CHUNK_BYTES):
        content += chunk
        if len(content) > MAX_BYTES:
            response.close()
            raise TooLargeAnswer(
                f"HTTP {response.status_code} with more than {MAX_BYTES:,} bytes, unpacked, more than any answer of"
                " MLflow's. Next: check that this is the address of an MLflow server"
            )
    response._content = bytes(content)  # as `Response.content` would have read it
    return response
