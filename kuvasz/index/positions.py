"""The position index of one table: key -> (data file, row position).

A log-structured merge of sorted runs, oldest first: the newest run that knows a key is right. Runs never change,
so a state of the index is a tuple of runs; `mark` remembers one, `rollback` returns to it, `checkpoint` writes
its name down. Neighbours are merged while the older is less than `_GROWTH` times as long as the newer, so there
are few runs, each record is moved a bounded number of times, and one run is by far the longest; all others carry
a Bloom filter.

It is a cache (invariant 11): after a crash it is what the last checkpoint said, or empty. It does not know which
rows are dead; whoever asks looks into the deletion bitmap of the file.

One thread at a time. An `OSError` (disk full) from any method leaves the state as it was before the call, and the
last checkpoint as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from kuvasz.errors import InternalError
from kuvasz.fold.keys import frozen
from kuvasz.index import edit, manifest
from kuvasz.index import records as kernels
from kuvasz.index.run import DamagedRunError, Run
from kuvasz.index.store import RunStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from kuvasz.fold.keys import Keys
    from kuvasz.index.store import Edit
    from kuvasz.model import Int32s, UInt32s, UInt64s

ABSENT = kernels.ABSENT

IsDead: TypeAlias = "Callable[[int], np.ndarray[tuple[int], np.dtype[np.bool_]] | Literal[True] | None]"

_GROWTH = 4
_IN_MEMORY_ROWS = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    runs: tuple[Run, ...] = ()  #: oldest first
    dropped: frozenset[int] = frozenset()  #: files whose records count as absent


class PositionIndex:
    """See the module. Made by `open` or `in_memory`.

    Large because what may be asked of an index and done to it is one state of runs, which a failure must leave as it
    was: merging, reading and writing runs are elsewhere (`store`, `run`, `edit`, `manifest`), each step of a state is
    here.
    """

    def __init__(self, folder: Path | None, memory_entries: int) -> None:
        self._folder = folder
        self._memory_entries = memory_entries
        self._store = RunStore(folder, memory_entries)
        self._now = _State()
        self._marked = self._now
        self._checkpoint: manifest.Manifest | None = None

    @classmethod
    def open(cls, folder: Path, *, memory_entries: int = 1 << 20, verify: bool = True) -> Self:
        """Open the index in `folder`, which nobody else may have open; make it if it is missing.

        A damaged index is emptied: its tag is then None.

        Args:
            folder: The index's own folder.
            memory_entries: So many records, 16 bytes each, are kept on the heap at most.
            verify: Read every file and compare checksums; else only sizes are looked at. Costs as long as reading
                16 bytes a row, and warms the page cache.

        Raises:
            OSError: The folder cannot be read or written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        index = cls(folder, memory_entries)
        try:
            index._restore(folder, verify=verify)
        except (manifest.DamagedManifestError, DamagedRunError):
            index = cls(folder, memory_entries)
            manifest.remove(folder)
        index._store.remove_strangers()
        return index

    @classmethod
    def in_memory(cls) -> Self:
        """Return an index without files: an overlay, or one for tests."""
        return cls(None, _IN_MEMORY_ROWS)

    def _restore(self, folder: Path, *, verify: bool) -> None:
        found = manifest.read(folder)
        if found is None:
            return
        runs = [self._store.adopt(folder / run.name, run, verify=verify) for run in found.runs]
        self._now = self._marked = _State(runs=tuple(runs), dropped=frozenset(found.dropped))
        self._checkpoint = found

    # --- Facts

    @property
    def tag(self) -> dict[str, Any] | None:
        """What was given to the last checkpoint; None if there is none."""
        return None if self._checkpoint is None else self._checkpoint.tag

    @property
    def entries(self) -> int:
        """Records held: at least the keys known; superseded and absent ones count until they are merged away."""
        return sum(len(run) for run in self._now.runs)

    @property
    def disk_bytes(self) -> int:
        """Bytes in run files, those included that only the last checkpoint or mark needs."""
        return self._store.disk_bytes

    @property
    def heap_bytes(self) -> int:
        """Bytes of records, fences and filters on the heap."""
        return sum(run.heap_bytes for run in {*self._now.runs, *self._marked.runs})

    # --- Keys

    def lookup(self, keys: Keys) -> tuple[UInt32s, UInt32s]:
        """Return file and position of n keys; both are `ABSENT` where a key is unknown."""
        hi, lo = frozen(keys.hi), frozen(keys.lo)
        places = np.full(len(keys), kernels.NOWHERE, np.uint64)
        pending = np.arange(len(keys), dtype=np.int64)
        for level in range(len(self._now.runs) - 1, -1, -1):
            if not len(pending):
                break
            pending = self._now.runs[level].find(hi, lo, pending, places, is_filtered=level > 0)
        file, position = (places >> np.uint64(32)).astype(np.uint32), places.astype(np.uint32)
        if self._now.dropped:
            file[np.isin(file, edit.file_numbers(self._now.dropped))] = ABSENT
        position[file == ABSENT] = ABSENT
        return file, position

    def insert(self, keys: Keys, file: UInt32s | int, position: UInt32s) -> None:
        """Note where n keys are from now on.

        Args:
            keys: In any order, each once.
            file: The file number of each key, or one for all; not `ABSENT`.
            position: The row position of each key; not `ABSENT`.

        Raises:
            InternalError: Lengths differ, a file or position is `ABSENT`, or a key is there twice.
            OSError: A run could not be written.
        """
        if not len(keys):
            return
        files = edit.file_numbers([int(file)]) if np.ndim(file) == 0 else np.asarray(file, np.uint32)
        if len(files) not in {1, len(keys)} or len(position) != len(keys):
            raise InternalError(f"{len(keys)} keys with {len(files)} files and {len(position)} positions")
        positions = np.asarray(position).astype(np.uint32, copy=False)
        if int(files.max()) == ABSENT or int(positions.max()) == ABSENT:
            where = f"file {files.max()}, row {positions.max()}"
            raise InternalError(f"a key cannot be inserted into {where}: {ABSENT} stands for none")
        places = files.astype(np.uint64) << np.uint64(32) | positions
        with self._tidied():
            state = self._now
            if state.dropped and not state.dropped.isdisjoint(np.unique(files).tolist()):
                state = self._purged(state)
            # A bound on the memory for sorting; parts that are too long for memory are merged again.
            for start in range(0, len(keys), self._memory_entries):
                part = slice(start, start + self._memory_entries)
                for run in self._store.sorted(keys.take(part), places[part]):
                    state = dataclasses.replace(state, runs=(*state.runs, run))
                    state = self._settled(state, self._shared(state))
            self._now = state

    def load(self, files: Sequence[tuple[int, UInt64s]]) -> None:
        """Note where the rows of whole files are from now on.

        Args:
            files: Number of a file, not `ABSENT`, and the records of its rows (`kuvasz.index.bulk.of_one_file`).
                Every key is in one of them only.

        Raises:
            InternalError: A key is there twice.
            OSError: A run could not be written.
        """
        with self._tidied():
            state = self._now
            if not state.dropped.isdisjoint(number for number, _ in files):
                state = self._purged(state)
            for run in self._store.loaded(files):
                state = dataclasses.replace(state, runs=(*state.runs, run))
                state = self._settled(state, self._shared(state))
            self._now = state

    # --- Undo and durability

    def mark(self) -> None:
        """Accept the present state: `rollback` returns to it."""
        with self._tidied():
            self._now = self._marked = self._settled(self._now, 0)
        self._sweep()

    def rollback(self) -> None:
        """Return to the state of the last `mark` (or `checkpoint`), whatever was done since."""
        self._now = self._marked
        self._sweep()

    def checkpoint(self, tag: dict[str, Any]) -> None:
        """Mark, and make the present state durable under `tag`: `open` finds this one or, before that, the last.

        Args:
            tag: Any JSON value that says which state of the table this is.
        """
        if self._folder is None:
            self.mark()
            self._checkpoint = manifest.Manifest(tag=tag)
            return
        with self._tidied():
            state = self._on_disk(self._settled(self._now, 0))
            for run in state.runs:
                run.sync()
            entries = [
                manifest.RunEntry(name=run.path.name, rows=len(run), extents=len(run.extents), checksum=run.checksum)
                for run in state.runs
                if run.path is not None
            ]
            fresh = manifest.Manifest(tag=tag, runs=tuple(entries), dropped=tuple(sorted(state.dropped)))
            manifest.write(self._folder, fresh)
        self._checkpoint = fresh
        self._now = self._marked = state
        self._sweep()

    def clear(self) -> None:
        """Forget everything, the checkpoint too."""
        if self._folder is not None:
            manifest.remove(self._folder)
        self._checkpoint = None
        self._now = self._marked = _State()
        self._sweep()

    def close(self) -> None:
        """Let go of memory and files. What came after the last checkpoint is lost."""
        self._now = self._marked = _State()
        self._sweep()

    # --- Files that change

    def remap(self, moves: Mapping[int, tuple[int, Int32s | UInt32s]]) -> None:
        """Follow rows into new files.

        Args:
            moves: Old file -> (new file, new position per old position, -1 or all ones where the row was dropped).
                Keys of rows that were dropped, or are beyond the positions given, become unknown.
        """
        if not moves:
            return
        with self._tidied():
            state = self._purged(self._now) if self._now.dropped else self._now
            self._now = self._edited(state, edit.Move.remap(moves))

    def drop_files(self, files: Collection[int]) -> None:
        """Make the keys whose newest place is in one of `files` unknown."""
        self._now = dataclasses.replace(self._now, dropped=self._now.dropped | frozenset(files))

    def merge(self, is_dead: IsDead | None = None) -> None:
        """Merge all that is marked into one run, leaving out superseded records, dropped files and dead rows.

        Into several where it has more rows than there are codes.

        Args:
            is_dead: File -> one boolean per position, True where the row is dead; True alone if all are, None if all
                are alive. Without it, all are.
        """
        shared = self._shared(self._now)
        marked, now = self._marked, self._now
        old = _State(runs=marked.runs[:shared], dropped=marked.dropped & now.dropped)
        with self._tidied():
            first = self._merged(old, list(self._changes(old, is_dead)))
        self._marked = _State(runs=first + marked.runs[shared:], dropped=marked.dropped)
        self._now = _State(runs=first + now.runs[shared:], dropped=now.dropped)
        if now == marked:  # no record points to a dropped file any more
            self._now = self._marked = _State(runs=first)
        self._sweep()

    # --- Below

    def _merged(self, state: _State, changes: list[Edit]) -> tuple[Run, ...]:
        """Return all runs as one, as few as there can be, or none."""
        runs = list(state.runs)
        if len(runs) > 1:
            self._collapse(runs, 0, to_disk=False)
        for change in changes:
            runs = self._all_edited(runs, change)
        return tuple(runs)

    def _changes(self, state: _State, is_dead: IsDead | None) -> Iterator[Edit]:
        dropped, dead = set(state.dropped), {}
        for file in self._files(state) if is_dead is not None else ():
            mask = None if is_dead is None or file in dropped else is_dead(file)
            if mask is True:
                dropped.add(file)
            elif mask is not None and len(mask):
                dead[file] = mask
        if dropped:
            yield edit.Move.drop(dropped)
        if dead:
            yield edit.DeadRows.of(dead)

    @staticmethod
    def _files(state: _State) -> list[int]:
        """Return the numbers of all files that records point to, and of such that they may have pointed to."""
        return sorted(set[int]().union(*(run.extents.files for run in state.runs)))

    def _purged(self, state: _State) -> _State:
        """Return the state with the records of dropped files made absent."""
        return dataclasses.replace(self._edited(state, edit.Move.drop(state.dropped)), dropped=frozenset())

    def _edited(self, state: _State, change: Edit) -> _State:
        return dataclasses.replace(state, runs=tuple(self._all_edited(state.runs, change)))

    def _all_edited(self, runs: Sequence[Run], change: Edit) -> list[Run]:
        edited = [self._store.edited(run, change, is_oldest=level == 0) for level, run in enumerate(runs)]
        return [run for made in edited for run in made]

    def _shared(self, state: _State) -> int:
        """Return how many runs `state` has in common with the marked one, from the oldest on."""
        count = 0
        for mine, theirs in zip(state.runs, self._marked.runs, strict=False):
            if mine is not theirs:
                break
            count += 1
        return count

    def _settled(self, state: _State, floor: int) -> _State:
        """Return the state with few runs and bounded memory; the oldest `floor` runs stay as they are."""
        runs = list(state.runs)
        in_memory = [level for level, run in enumerate(runs) if run.path is None]
        if sum(len(runs[level]) for level in in_memory) > self._memory_entries:
            # What is marked fits into memory, so there is one above the floor.
            self._collapse(runs, next(level for level in in_memory if level >= floor), to_disk=True)
        level = len(runs) - 1
        while level > floor and len(runs[level - 1]) < _GROWTH * len(runs[level]):
            if not self._store.fits(runs[level - 1], runs[level]):
                break
            self._collapse(runs, level - 1, to_disk=False)
            level = len(runs) - 1
        return dataclasses.replace(state, runs=tuple(runs))

    def _on_disk(self, state: _State) -> _State:
        runs = list(state.runs)
        in_memory = [level for level, run in enumerate(runs) if run.path is None]
        if in_memory:
            self._collapse(runs, in_memory[0], to_disk=True)
        return self._settled(dataclasses.replace(state, runs=tuple(runs)), 0)

    def _collapse(self, runs: list[Run], level: int, *, to_disk: bool) -> None:
        """Make one run, or none, of all from `level` on, or as few as can be."""
        last: Run | None = runs[-1]
        apart: list[Run] = []  # oldest first
        for at in range(len(runs) - 2, level - 1, -1):
            if last is not None and self._store.fits(runs[at], last):
                last = self._store.merged(runs[at], last, is_oldest=at == 0, to_disk=to_disk and at == level)
            else:
                apart = apart if last is None else [last, *apart]
                last = runs[at]
        left = apart if last is None else [last, *apart]
        runs[level:] = [self._store.stored(run) for run in left] if to_disk else left

    @contextlib.contextmanager
    def _tidied(self) -> Iterator[None]:
        """Remove the files of a change that failed: the disk may be full."""
        try:
            yield
        except BaseException:
            self._sweep()
            raise

    def _sweep(self) -> None:
        named = {run.path.name for state in (self._now, self._marked) for run in state.runs if run.path is not None}
        saved = () if self._checkpoint is None else self._checkpoint.runs
        self._store.keep_only(named | {entry.name for entry in saved})
