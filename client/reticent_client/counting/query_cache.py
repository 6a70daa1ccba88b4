"""Queries that were fetched, by their digests: the phones of a process fetch each of them once."""

from __future__ import annotations

import threading
from collections import OrderedDict

from reticent.privacy import Query

__all__ = ["SHARED", "QueryCache"]

MAX_BYTES = 16 << 20
"""Bytes of all queries that are kept; one has up to a megabyte."""


class QueryCache:
    """The queries that were used last. Any thread may use it."""

    def __init__(self) -> None:
        self._contents: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> bytes | None:
        """The content of a query."""
        with self._lock:
            if digest in self._contents:
                self._contents.move_to_end(digest)
            return self._contents.get(digest)

    def add(self, digest: bytes, content: bytes) -> bool:
        """Keep a content, if it is that of the query; whether it is."""
        if Query.digest_of(content) != digest:
            return False
        with self._lock:
            if digest not in self._contents:
                self._bytes += len(content)
            self._contents[digest] = content
            while self._bytes > MAX_BYTES:
                self._bytes -= len(self._contents.popitem(last=False)[1])
        return True


SHARED = QueryCache()
"""For all phones of this process."""
