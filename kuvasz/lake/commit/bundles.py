"""Chunks of several small sources put together, so that what a commit costs is a matter of bytes, not of sources.

Pure. A bundle is one task of an executor and one data file (per partition). Its chunks are of one target, alike in
all but whose they are, and of whole transactions. A source that brings a chunk worth a file of its own keeps that.

The steps of each source stay in their order: a chunk joins a bundle only if that stands behind all steps that its
source had so far. So a bundle has one chunk of a source at most, and a truncation, or a file whose name says how old
it is, finds all that came before it in earlier steps.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz.fold.difference import find
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.chunks import Chunk
from kuvasz.model import Truncation
from kuvasz.modes.transaction_facts import Facts

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.executors.tasks import ChunkDone


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Chunks of several sources, one after another."""

    chunks: tuple[Chunk, ...]

    @property
    def source(self) -> str:
        """The first one."""
        return self.chunks[0].source

    @property
    def ends(self) -> list[int]:
        """Per chunk: the number of messages up to its last one."""
        return list(itertools.accumulate(chunk.rows for chunk in self.chunks))

    @property
    def size(self) -> int:
        """Bytes of its messages."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """How many messages it has."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def facts(self) -> Facts | None:
        """What the rows have of their transactions; None for table types that do not ask."""
        begins = [0, *self.ends]
        runs = [
            chunks.moved(run, begin) for chunk, begin in zip(self.chunks, begins, strict=False) for run in chunk.runs
        ]
        return Facts.of(np.concatenate(runs)) if runs else None


#: What is done for a target in one go.
Step: TypeAlias = Chunk | Bundle | Truncation


def chunks_of(step: Chunk | Bundle) -> tuple[Chunk, ...]:
    """Return what a step is made of."""
    return step.chunks if isinstance(step, Bundle) else (step,)


def sources_of(step: Step) -> tuple[str, ...]:
    """Return the sources that a step is of."""
    return tuple(chunk.source for chunk in step.chunks) if isinstance(step, Bundle) else (step.source,)


def open_lsn(step: Step) -> int:
    """Return the commit LSN of the unfinished transaction a step belongs to, 0 if it is of whole ones."""
    return 0 if isinstance(step, Bundle) else chunks.open_lsn(step)


def owner_finder(step: Step, done: ChunkDone) -> Callable[[Keys], str]:
    """Return what says whose one of the keys is that a step touched: for messages, so it may take its time."""

    def source_of(key: Keys) -> str:
        if done.keys is None or done.whose is None:
            return step.source
        found = np.flatnonzero((done.keys.hi == key.hi) & (done.keys.lo == key.lo))
        return sources_of(step)[int(done.whose[found[0]])]

    return source_of


def owners_of(step: Step, done: ChunkDone, keys: Keys) -> list[str]:
    """Return whose each of many keys is that a step touched."""
    if done.keys is None or done.whose is None:
        return [step.source] * len(keys)
    order = np.lexsort((done.keys.lo, done.keys.hi)).astype(np.int32)
    at = order[find(done.keys.take(order), keys)]
    sources = sources_of(step)
    return [sources[number] for number in done.whose[at].tolist()]


def pack(
    steps: Iterable[Chunk | Truncation], likeness: Callable[[Chunk], Hashable | None], chunk_bytes: int
) -> list[Step]:
    """Put small chunks of different sources together.

    Args:
        steps: The steps of one target, in order per source.
        likeness: The same for chunks that may share a bundle; None for one that stays alone.
        chunk_bytes: The size of a full chunk. No bundle is larger.

    Returns:
        All steps, in order per source.
    """
    groups: list[list[Chunk | Truncation]] = []
    places: dict[str, int] = {}  # of each source's last step
    open_places: dict[Hashable, tuple[int, int]] = {}  # likeness -> where chunks are gathered, and their bytes
    for step in steps:
        alike = likeness(step) if isinstance(step, Chunk) and _is_small(step, chunk_bytes) else None
        place, size = open_places.get(alike, (-1, 0)) if alike is not None else (-1, 0)
        if isinstance(step, Truncation) or place <= places.get(step.source, -1) or size + step.size > chunk_bytes:
            place, size = len(groups), 0
            groups.append([])
        groups[place].append(step)
        places[step.source] = place
        if alike is not None and isinstance(step, Chunk):
            open_places[alike] = place, size + step.size
    return [_joined(group) for group in groups]


def _is_small(chunk: Chunk, chunk_bytes: int) -> bool:
    return not chunk.open_lsn and 2 * chunk.size <= chunk_bytes


def _joined(group: Sequence[Chunk | Truncation]) -> Step:
    found = tuple(step for step in group if isinstance(step, Chunk))
    return Bundle(chunks=found) if len(found) > 1 else group[0]


__all__ = ["Bundle", "Step", "chunks_of", "open_lsn", "owner_finder", "owners_of", "pack", "sources_of"]
