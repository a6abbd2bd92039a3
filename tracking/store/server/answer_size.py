"""How large an answer may become: one of a few kilobytes can unpack to gigabytes (gzip), and would fill the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from requests import Response

MOST_BYTES = 134_217_728  # MLflow's largest, a page of 1,000 runs with hundreds of metrics each, is a fifth of that
CHUNK_BYTES = 16_384  # As it comes; unpacked it may be a thousand times as much.


class TooLargeAnswer(OSError):
    """An answer was given up, since it is larger than any of MLflow's; the message says what it came to."""


def bounded(response: Response) -> Response:
    """The response with all of its content, which was asked for with `stream=True`. Raises TooLargeAnswer."""
    content = bytearray()
    for chunk in response.iter_content(CHUNK_BYTES):
        content += chunk
        if len(content) > MOST_BYTES:
            response.close()
            raise TooLargeAnswer(
                f"HTTP {response.status_code} with more than {MOST_BYTES:,} bytes, unpacked, which is none of MLflow's"
                " answers: is this the address of an MLflow server?"
            )
    response._content = bytes(content)  # as `Response.content` would have read it
    return response
