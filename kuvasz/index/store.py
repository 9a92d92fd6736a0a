"""Makes runs: sorted from keys, merged from two, rewritten from one; small ones in memory, others in files.

Where a run would have more rows in its extents than there are codes, it is several: of a key only one of them knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from kuvasz.fold.keys import frozen
from kuvasz.index import bulk
from kuvasz.index import records as kernels
from kuvasz.index.extents import Extents
from kuvasz.index.run import CHUNK, Run, RunWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kuvasz.fold.keys import Keys
    from kuvasz.index.manifest import RunEntry
    from kuvasz.model import UInt64s

_U32 = np.uint64(32)
_SUFFIX = ".run"


class Edit(Protocol):
    """A change to places of rows."""

    def extents(self, before: Extents) -> Extents | None:
        """Return the extents of a run after it, one of each file; None if it changes no place of the run.

        Args:
            before: The extents it has.
        """

    def apply(self, places: UInt64s) -> None:
        """Change places, in place."""


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

    def adopt(self, path: Path, entry: RunEntry, *, verify: bool) -> Run:
        """Return a run of an earlier process; raises `DamagedRunError`."""
        run = Run.open(path, rows=entry.rows, extents=entry.extents, checksum=entry.checksum, verify=verify)
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

    def sorted(self, keys: Keys, places: UInt64s) -> list[Run]:
        """Return a run of keys in any order, at least one.

        Raises:
            InternalError: A key is there twice.
        """
        runs: list[Run] = []
        all_of_them = Extents.of_places(places)
        for which in all_of_them.parts():
            part = all_of_them.part(which)
            codes = part.codes(places)
            if len(part) < len(all_of_them):
                mine = codes != kernels.ABSENT
                run = Run(bulk.ascending(keys.take(mine), codes[mine]), part)
            else:
                run = Run(bulk.ascending(keys, codes), part)
            runs.append(run if len(run) <= self._memory_rows else self.stored(run))
        return runs

    def loaded(self, files: Sequence[tuple[int, UInt64s]]) -> list[Run]:
        """Return a run of the records of whole files, see `kuvasz.index.bulk`; none if there are none.

        Raises:
            InternalError: A key is there twice.
        """
        files = [(number, records) for number, records in files if len(records)]
        firsts = np.array([number for number, _ in files], np.uint64) << _U32
        runs: list[Run | None] = []
        all_of_them = Extents(firsts, np.array([kernels.top(one) for _, one in files], np.int64))
        for which in all_of_them.parts():
            part, records = all_of_them.part(which), [one for _, one in files[which]]
            is_large = sum(map(len, records)) > self._memory_rows
            writer = RunWriter(self._fresh() if is_large else None, part)
            coded = list(zip(part.starts.tolist(), records, strict=True))
            runs.append(self._finished(writer, bulk.merged(coded)))
        return [run for run in runs if run is not None]

    def stored(self, run: Run) -> Run:
        """Return the same run in a file."""
        if run.path is not None or self._folder is None:
            return run
        writer = RunWriter(self._fresh(), run.extents)
        return self._finished(writer, [run.records]) or run

    @staticmethod
    def fits(older: Run, newer: Run) -> bool:
        """Whether there are codes for all rows that two runs have in their extents, so that they can be merged."""
        return newer.extents.behind(older.extents).fits or older.extents.joined(newer.extents).fits

    def merged(self, older: Run, newer: Run, *, is_oldest: bool, to_disk: bool = False) -> Run | None:
        """Return one run of two that fit, None if it is empty.

        Args:
            older: Gives way where both have a key.
            newer: Wins.
            is_oldest: No run stands below: absent keys need no record.
            to_disk: Write a file even if both runs are small.
        """
        both, shift = newer.extents.behind(older.extents), np.uint64(older.extents.rows)
        if not both.fits:
            both, shift = older.extents.joined(newer.extents), np.uint64(0)
            older, newer = self._coded(older, both), self._coded(newer, both)
        total = len(older) + len(newer)
        path = self._fresh() if to_disk or total > self._memory_rows or older.path or newer.path else None
        out = np.empty((total if path is None else min(CHUNK, total), kernels.WORDS), np.uint64)

        def parts() -> Iterator[UInt64s]:
            i = j = 0
            while i < len(older) or j < len(newer):
                i, j, count = kernels.merge(older.records, i, newer.records, j, out, shift, is_oldest)
                part = out[:count]
                # In memory `out` itself becomes the run, unless much of it would be wasted.
                yield part.copy() if path is None and count < 0.9 * total else part

        return self._finished(RunWriter(path, both), parts())

    def _coded(self, run: Run, other: Extents) -> Run:
        """Return a run with codes of other extents, which have all of its rows."""
        chunks = (kernels.with_codes(chunk, frozen(other.codes(run.extents.places(chunk)))) for chunk in run.chunks())
        return self._finished(RunWriter(None if run.path is None else self._fresh(), other), chunks) or run

    def edited(self, run: Run, edit: Edit, *, is_oldest: bool) -> list[Run]:
        """Return the run with `edit` applied: the same object if nothing changes, nothing if nothing is left."""
        after = edit.extents(run.extents)
        if after is None:
            return [run]
        runs: list[Run | None] = []
        for which in after.parts():
            part, keeps_absent = after.part(which), not is_oldest and not runs
            edited = (_edited(run, chunk, edit, part, keeps_absent=keeps_absent) for chunk in run.chunks())
            runs.append(self._finished(RunWriter(self._fresh() if run.path is not None else None, part), edited))
        return [made for made in runs if made is not None]

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
            self._files[run.path.name] = run.file_bytes
        return run


def _edited(run: Run, records: UInt64s, edit: Edit, after: Extents, *, keeps_absent: bool) -> UInt64s:
    """Return those of some records of a run that have a place in some extents, and those that have none at all."""
    places = run.extents.places(records)
    edit.apply(places)
    codes = after.codes(places)
    kept = codes != kernels.ABSENT
    if keeps_absent:
        kept |= places == kernels.NOWHERE
    records = kernels.with_codes(records, frozen(codes))
    return records if kept.all() else records[kept]
