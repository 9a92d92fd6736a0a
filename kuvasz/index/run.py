"""One sorted run of the position index: records in memory or in a mapped file, and what makes it fast to search.

A file holds the records and nothing else, 24 bytes each in the machine's byte order: the index is a local cache.
It is written under a name never used before and never changed afterwards.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np

from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kuvasz.model import Int64s, UInt64s

CHUNK = 1 << 16  #: records handled at once while streaming: 1.5 MB
_NO_FILTER = frozen(np.empty(0, np.uint64))


class DamagedRunError(Exception):
    """A run's file is not what was written."""


class Run:
    """At least one record, ascending by key. Never changes.

    Attributes:
        records: Shape (n, 3), read-only; see `kuvasz.index.records`.
        path: The file it is mapped from, None while only in memory.
        checksum: The checksum of all records; empty while only in memory.
        is_synced: The file is known to be on stable storage.
    """

    __slots__ = ("_bloom", "_fences", "checksum", "is_synced", "path", "records")

    def __init__(self, records: UInt64s, *, path: Path | None = None, checksum: str = "") -> None:
        self.records = frozen(records)
        self.path = path
        self.checksum = checksum
        self.is_synced = False
        self._fences = frozen(records[:: kernels.BLOCK, :2])
        self._bloom: UInt64s | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def heap_bytes(self) -> int:
        """Bytes on the heap: fences, filter, and the records if they have no file."""
        own = self.records.nbytes if self.path is None else 0
        return own + self._fences.nbytes + (0 if self._bloom is None else self._bloom.nbytes)

    def find(self, hi: UInt64s, lo: UInt64s, pending: Int64s, places: UInt64s, *, is_filtered: bool) -> Int64s:
        """Look up the keys numbered in `pending`; write the places found and return the numbers of the others.

        `is_filtered` is for runs that most keys are not in: it costs one byte per record.
        """
        if is_filtered and self._bloom is None:
            self._bloom = frozen(kernels.key_filter(self.records))
        bloom = self._bloom if is_filtered and self._bloom is not None else _NO_FILTER
        return pending[: kernels.find(self.records, self._fences, bloom, hi, lo, pending, places)]

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
    def open(cls, path: Path, *, rows: int, checksum: str, verify: bool) -> Self:
        """Map a run that an earlier process wrote.

        Args:
            path: Its file.
            rows: The number of its records.
            checksum: What they must sum to.
            verify: Read the whole file and compare; else only its size is looked at.

        Raises:
            DamagedRunError: The file is missing, too short or too long, or its sum is another.
        """
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise DamagedRunError(f"{path.name} is missing") from error
        if rows <= 0 or size != rows * kernels.RECORD_BYTES:
            raise DamagedRunError(f"{path.name} has {size} bytes, not {rows * kernels.RECORD_BYTES}")
        if verify and _file_checksum(path) != checksum:
            raise DamagedRunError(f"{path.name} has another checksum")
        run = cls(_mapped(path), path=path, checksum=checksum)
        run.is_synced = True
        return run


class RunWriter:
    """Writes ascending records, chunk by chunk, to a file, or to memory if there is no path.

    `run()` ends it; an error on the way is the caller's to follow with `abandon()`.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
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
            return
        for start in range(0, len(records), CHUNK):
            part = frozen(records[start : start + CHUNK])
            kernels.checksum(part, self._checksum)
            _write_all(self._file, part.data.cast("B"))

    def run(self) -> Run | None:
        """Return the run, or None (and leave no file) if nothing was written."""
        if not self._rows:
            self.abandon()
            return None
        if self._path is None or self._file is None:
            return Run(self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts))
        self._file.close()
        return Run(_mapped(self._path), path=self._path, checksum=self._checksum.tobytes().hex())

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._parts.clear()
        if self._path is not None and self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


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
