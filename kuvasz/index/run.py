"""One sorted run of the position index: records in memory or in a mapped file, and what makes it fast to search.

A file holds the records, and behind them the extents which say what their codes stand for, 16 bytes each in the
machine's byte order: the index is a local cache. It is written under a name never used before and never changed
afterwards.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np

from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels
from kuvasz.index.extents import Extents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kuvasz.model import Int64s, UInt64s

CHUNK = 1 << 16  #: records handled at once while streaming: 1 MB
_NO_FILTER = frozen(np.empty(0, np.uint64))


class DamagedRunError(Exception):
    """A run's file is not what was written."""


class Run:
    """At least one record, ascending by key. Never changes.

    Attributes:
        records: Shape (n, 2), read-only; see `kuvasz.index.records`.
        extents: What their codes stand for.
        path: The file it is mapped from, None while only in memory.
        checksum: The checksum of all records; empty while only in memory.
        is_synced: The file is known to be on stable storage.
    """

    __slots__ = ("_bloom", "_fences", "checksum", "extents", "is_synced", "path", "records")

    def __init__(self, records: UInt64s, extents: Extents, *, path: Path | None = None, checksum: str = "") -> None:
        self.records = frozen(records)
        self.extents = extents
        self.path = path
        self.checksum = checksum
        self.is_synced = False
        self._fences = frozen(kernels.fences(self.records))
        self._bloom: UInt64s | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def file_bytes(self) -> int:
        """Bytes of a file of the run."""
        return file_bytes(len(self.records), len(self.extents))

    @property
    def heap_bytes(self) -> int:
        """Bytes on the heap: fences, extents, filter, and the records if they have no file."""
        parts = [self._fences, self.extents.bounds]
        parts += [] if self.path is not None else [self.records]
        parts += [] if self._bloom is None else [self._bloom]
        return sum(part.nbytes for part in parts)

    def find(self, hi: UInt64s, lo: UInt64s, pending: Int64s, places: UInt64s, *, is_filtered: bool) -> Int64s:
        """Look up the keys numbered in `pending`; write the places found and return the numbers of the others.

        `is_filtered` is for runs that most keys are not in: it costs one byte per record.
        """
        if is_filtered and self._bloom is None:
            self._bloom = frozen(kernels.key_filter(self.records))
        bloom = self._bloom if is_filtered and self._bloom is not None else _NO_FILTER
        bounds = self.extents.bounds
        return pending[: kernels.find(self.records, self._fences, bloom, bounds, hi, lo, pending, places)]

    def chunks(self) -> Iterator[UInt64s]:
        """Yield the records in slices of `CHUNK`."""
        for start in range(0, len(self.records), CHUNK):
            yield self.records[start : start + CHUNK]

    def sync(self) -> None:
        """Bring the file to stable storage."""
        if self.path is None or self.is_synced:
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.is_synced = True

    @classmethod
    def open(cls, path: Path, *, rows: int, extents: int, checksum: str, verify: bool) -> Self:
        """Map a run that an earlier process wrote.

        Args:
            path: Its file.
            rows: The number of its records.
            extents: The number of its extents.
            checksum: What they must sum to.
            verify: Read the whole file and compare; else only its size is looked at.

        Raises:
            DamagedRunError: The file is missing, too short or too long, or its sum is another.
        """
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise DamagedRunError(f"{path.name} is missing") from error
        if rows <= 0 or extents < 0 or size != file_bytes(rows, extents):
            raise DamagedRunError(f"{path.name} has {size} bytes, not {file_bytes(rows, extents)}")
        if verify and _file_checksum(path) != checksum:
            raise DamagedRunError(f"{path.name} has another checksum")
        mapped = _mapped(path)
        run = cls(mapped[:rows], Extents.parsed(mapped[rows:]), path=path, checksum=checksum)
        run.is_synced = True
        return run


class RunWriter:
    """Writes ascending records, chunk by chunk, to a file, or to memory if there is no path.

    `run()` ends it; an error on the way is the caller's to follow with `abandon()`.

    Args:
        path: Where to.
        extents: What the codes of the records stand for.
    """

    def __init__(self, path: Path | None, extents: Extents) -> None:
        self._path = path
        self._extents = extents
        self._file: BinaryIO | None = None if path is None else path.open("xb", buffering=0)
        self._parts: list[UInt64s] = []
        self._checksum = np.zeros(kernels.WORDS, np.uint64)
        self._rows = 0

    def write(self, records: UInt64s) -> None:
        """Add records. What goes to memory is kept, not copied: the caller does not change it any more."""
        if not len(records):
            return
        self._rows += len(records)
        if self._file is None:
            self._parts.append(records)
        else:
            self._put(self._file, records)

    def _put(self, file: BinaryIO, records: UInt64s) -> None:
        for start in range(0, len(records), CHUNK):
            part = frozen(records[start : start + CHUNK])
            kernels.checksum(part, self._checksum)
            _write_all(file, part.data.cast("B"))

    def run(self) -> Run | None:
        """Return the run, or None (and leave no file) if nothing was written."""
        if not self._rows:
            self.abandon()
            return None
        if self._path is None or self._file is None:
            return Run(self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts), self._extents)
        self._put(self._file, self._extents.rendered())
        self._file.close()
        records, checksum = _mapped(self._path)[: self._rows], self._checksum.tobytes().hex()
        return Run(records, self._extents, path=self._path, checksum=checksum)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._parts.clear()
        if self._path is not None and self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


def file_bytes(rows: int, extents: int) -> int:
    """Return the bytes of a file of so many records and extents."""
    return (rows + extents) * kernels.RECORD_BYTES


def _write_all(file: BinaryIO, data: memoryview) -> None:
    # A raw write may take only a part when the disk is nearly full; the next one then says why.
    while data:
        data = data[file.write(data) or 0 :]


def _mapped(path: Path) -> UInt64s:
    flat: UInt64s = np.memmap(path, np.uint64, mode="r").view(np.ndarray)
    return flat.reshape(-1, kernels.WORDS)


def _file_checksum(path: Path) -> str:
    # Read, not mapped: a bad sector is then an error instead of a signal.
    total = np.zeros(kernels.WORDS, np.uint64)
    buffer = np.empty((CHUNK, kernels.WORDS), np.uint64)
    with path.open("rb") as file:
        while size := file.readinto(buffer.data.cast("B")):
            kernels.checksum(frozen(buffer[: size // kernels.RECORD_BYTES]), total)
    return total.tobytes().hex()
