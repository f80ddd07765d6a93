"""What the compressed batches of one request may come to.

Four bytes of zstd can stand for 128 KiB, and a few hundred for millions of records. A batch that must be
looked into is bounded by what it may take up (`compression.decompress`), and all of a request together by
this: by what they cost, their bytes without compression, and so many for each batch, record and header.
"""

from __future__ import annotations

from typing import Final

from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["BATCH_BYTES", "INFLATED_BYTES_MAX", "ITEM_BYTES", "Inflated"]

INFLATED_BYTES_MAX: Final = 256 << 20
ITEM_BYTES: Final = 128
"""To look at a record, or at a header of one, takes about as long as to inflate so many bytes."""
BATCH_BYTES: Final = 16 << 10
"""And so does a stream that holds next to nothing: what it is read with has to be made ready."""


class Inflated:
    """Counts it.

    Who passes the maximum with one batch is refused for good. Who would pass it with all batches of a request
    together may send the last ones again: in a request that has fewer, they are taken. So the first batch of
    a request is never refused for the others' sake, and whoever sends again gets on.
    """

    __slots__ = ("_batch_bytes", "_bytes_max", "bytes")

    def __init__(self, bytes_max: int = INFLATED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.bytes = self._batch_bytes = 0

    def begin(self, record_count: int) -> None:
        """The next batch, which says that it has so many records, before it is inflated."""
        if self.bytes and self.bytes + record_count * ITEM_BYTES >= self._bytes_max:
            reason = f"more than {self._bytes_max} bytes, with {ITEM_BYTES} for each record and header"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the batches of the request inflate to {reason}")
        self._batch_bytes = 0
        self.bytes += BATCH_BYTES
        self.count_items(record_count)

    def count_items(self, count: int) -> None:
        """Records, or headers, before they are looked at."""
        self.count_bytes(count * ITEM_BYTES)

    def count_bytes(self, count: int) -> None:
        """What has been inflated."""
        self.bytes += count
        self._batch_bytes += count
        if self._batch_bytes > self._bytes_max:
            reason = f"more than {self._bytes_max} bytes, with {ITEM_BYTES} for each record and header"
            raise ApiError(ErrorCode.INVALID_RECORD, f"a compressed batch inflates to {reason}")
