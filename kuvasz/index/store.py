"""Makes runs: sorted from keys, merged from two, rewritten from one; small ones in memory, others in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from kuvasz.index import bulk
from kuvasz.index import records as kernels
from kuvasz.index.run import CHUNK, Run, RunWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kuvasz.fold.keys import Keys
    from kuvasz.model import UInt32s, UInt64s

_SUFFIX = ".run"


class Edit(Protocol):
    """A change to records in place."""

    def apply(self, records: UInt64s) -> int:
        """Change records; return how many were changed."""


class RunStore:
    """A folder of run files, or memory alone.

    Args:
        folder: Where files go; None keeps every run in memory.
        memory_rows: A run of more records goes to a file.
    """

    def __init__(self, folder: Path | None, memory_rows: int) -> None:
        self._folder = folder
        self._memory_rows = memory_rows
        self._files: dict[str, int] = {}  #: name -> bytes, of every file this store made or took over
        self._next = 0

    @property
    def disk_bytes(self) -> int:
        """Bytes in files, those still waiting to be removed included."""
        return sum(self._files.values())

    def adopt(self, path: Path, rows: int, checksum: str, *, verify: bool) -> Run:
        """Return a run of an earlier process; raises `DamagedRunError`."""
        run = Run.open(path, rows=rows, checksum=checksum, verify=verify)
        self._register(run)
        self._next = max(self._next, int(path.stem, 16) + 1)
        return run

    def keep_only(self, names: Collection[str]) -> None:
        """Remove every run file but these. Whoever still maps one keeps its records."""
        if self._folder is None:
            return
        for name in [name for name in self._files if name not in names]:
            (self._folder / name).unlink(missing_ok=True)
            del self._files[name]

    def remove_strangers(self) -> None:
        """Remove run files that this store does not know: an earlier process left them."""
        if self._folder is None:
            return
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in self._files:
                path.unlink(missing_ok=True)

    def sorted(self, keys: Keys, file: UInt32s, position: UInt32s) -> Run:
        """Return a run of keys in any order.

        Raises:
            InternalError: A key is there twice.
        """
        run = Run(bulk.ascending(keys, file, position))
        return run if len(run) <= self._memory_rows else self.stored(run)

    def loaded(self, files: Sequence[tuple[int, UInt64s]]) -> Run | None:
        """Return one run of the records of whole files, see `kuvasz.index.bulk`; None if there are none.

        Raises:
            InternalError: A key is there twice.
        """
        is_large = sum(len(records) for _, records in files) > self._memory_rows
        return self._finished(RunWriter(self._fresh() if is_large else None), bulk.merged(files))

    def stored(self, run: Run) -> Run:
        """Return the same run in a file."""
        if run.path is not None or self._folder is None:
            return run
        writer = RunWriter(self._fresh())
        return self._finished(writer, [run.records]) or run

    def merged(self, older: Run, newer: Run, *, is_oldest: bool, to_disk: bool = False) -> Run | None:
        """Return one run of two, None if it is empty.

        Args:
            older: Gives way where both have a key.
            newer: Wins.
            is_oldest: No run stands below: absent keys need no record.
            to_disk: Write a file even if both runs are small.
        """
        total = len(older) + len(newer)
        path = self._fresh() if to_disk or total > self._memory_rows or older.path or newer.path else None
        out = np.empty((total if path is None else min(CHUNK, total), kernels.WORDS), np.uint64)

        def parts() -> Iterator[UInt64s]:
            i = j = 0
            while i < len(older) or j < len(newer):
                i, j, count = kernels.merge(older.records, i, newer.records, j, out, is_oldest)
                part = out[:count]
                # In memory `out` itself becomes the run, unless much of it would be wasted.
                yield part.copy() if path is None and count < 0.9 * total else part

        return self._finished(RunWriter(path), parts())

    def edited(self, run: Run, edit: Edit, *, is_oldest: bool) -> Run | None:
        """Return the run with `edit` applied: the same object if nothing changes, None if nothing is left."""
        if not any(edit.apply(chunk.copy()) for chunk in run.chunks()):
            return run
        writer = RunWriter(self._fresh() if run.path is not None else None)
        return self._finished(writer, (_edited(chunk.copy(), edit, is_oldest=is_oldest) for chunk in run.chunks()))

    def _finished(self, writer: RunWriter, parts: Iterable[UInt64s]) -> Run | None:
        try:
            for part in parts:
                writer.write(part)
            return self._register(writer.run())
        except BaseException:
            writer.abandon()
            raise

    def _fresh(self) -> Path | None:
        if self._folder is None:
            return None
        self._next += 1
        return self._folder / f"{self._next - 1:08x}{_SUFFIX}"

    def _register(self, run: Run | None) -> Run | None:
        if run is not None and run.path is not None:
            self._files[run.path.name] = len(run) * kernels.RECORD_BYTES
        return run


def _edited(records: UInt64s, edit: Edit, *, is_oldest: bool) -> UInt64s:
    if not edit.apply(records) or not is_oldest:
        return records
    kept: UInt64s = records[records[:, 2] >> np.uint64(32) != kernels.ABSENT]
    return kept
