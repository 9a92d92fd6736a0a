"""Changes to the places of rows while their records are streamed from one run to the next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

import numpy as np

from kuvasz.errors import InternalError
from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels
from kuvasz.index.extents import Extents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kuvasz.model import Int32s, Int64s, UInt8s, UInt32s, UInt64s

_U32 = np.uint64(32)
_POSITION = 0xFFFF_FFFF  #: the bits of a place that are no file
_NO_POSITIONS = frozen(np.empty(0, np.int32))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Files whose rows went elsewhere, or nowhere."""

    files: UInt32s  #: ascending
    targets: UInt32s
    starts: Int64s  #: of each file in `positions`, and the end
    positions: Int32s  #: negative where the row was dropped

    def apply(self, places: UInt64s) -> None:
        """Change places, as they were before, in place."""
        kernels.move(places, self.files, self.targets, self.starts, self.positions)

    def extents(self, before: Extents) -> Extents | None:
        """Return the extents of a run after the move, one of each file; None if none of its rows moves.

        Args:
            before: The extents it has.
        """
        moved = np.isin(before.firsts >> _U32, self.files)
        if not moved.any():
            return None
        firsts, lasts = [before.firsts[~moved]], [before.lasts[~moved]]
        for first, last in zip(before.firsts[moved].tolist(), before.lasts[moved].tolist(), strict=True):
            slot = np.searchsorted(self.files, first >> 32)
            start, end = self.starts[slot : slot + 2].tolist()
            found = self.positions[start + (first & _POSITION) : min(start + (last & _POSITION) + 1, end)]
            found = found[found >= 0]
            if len(found):
                target = int(self.targets[slot]) << 32
                firsts.append(np.array([target + int(found.min())], np.uint64))
                lasts.append(np.array([target + int(found.max())], np.uint64))
        return Extents.over(np.concatenate(firsts), np.concatenate(lasts))

    @classmethod
    def remap(cls, moves: Mapping[int, tuple[int, Int32s | UInt32s]]) -> Self:
        """Return the move of rows to new files.

        Args:
            moves: Old file -> (new file, new position per old position; -1 or all ones where the row was dropped).
        """
        files = sorted(moves)
        parts = [np.asarray(moves[file][1]) for file in files]
        if any(part.dtype not in (np.int32, np.uint32) for part in parts):
            raise InternalError(f"positions are 32-bit integers, not {sorted({str(part.dtype) for part in parts})}")
        return cls(
            files=file_numbers(files),
            targets=file_numbers(moves[file][0] for file in files),
            starts=_starts([len(part) for part in parts]),
            positions=frozen(np.concatenate([np.ascontiguousarray(part).view(np.int32) for part in parts])),
        )

    @classmethod
    def drop(cls, files: Collection[int]) -> Self:
        """Return the move of all rows of some files to nowhere."""
        numbers = file_numbers(sorted(files))
        return cls(files=numbers, targets=numbers, starts=_starts([0] * len(files)), positions=_NO_POSITIONS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeadRows:
    """Rows that are dead in files that stay."""

    files: UInt32s  #: ascending
    starts: Int64s  #: of each file's first byte in `bits`, and the end
    bits: UInt8s  #: one bit per row, lowest first

    def apply(self, places: UInt64s) -> None:
        """Change places, as they were before, in place."""
        kernels.bury(places, self.files, self.starts, self.bits)

    def extents(self, before: Extents) -> Extents | None:
        """Return the extents of a run, one of each file; None if it has no row in a file with dead ones.

        Args:
            before: The extents it has.
        """
        is_touched = np.isin(before.firsts >> _U32, self.files).any()
        return Extents.over(before.firsts, before.lasts) if is_touched else None

    @classmethod
    def of(cls, masks: Mapping[int, np.ndarray[tuple[int], np.dtype[np.bool_]]]) -> Self:
        """Return the burial of the rows whose mask is True.

        Args:
            masks: File -> one boolean per position from 0 on; at least one file.
        """
        files = sorted(masks)
        parts = [np.packbits(masks[file], bitorder="little") for file in files]
        return cls(
            files=file_numbers(files),
            starts=_starts([len(part) for part in parts]),
            bits=frozen(np.concatenate(parts)),
        )


def file_numbers(files: Iterable[int]) -> UInt32s:
    """Return file numbers as an array.

    Raises:
        InternalError: A number is not in [0, ABSENT).
    """
    numbers = list(files)
    if numbers and not 0 <= min(numbers) <= max(numbers) < kernels.ABSENT:
        raise InternalError(f"file numbers go from 0 to {kernels.ABSENT - 1}, not {min(numbers)} to {max(numbers)}")
    return frozen(np.array(numbers, np.uint32))


def _starts(lengths: list[int]) -> Int64s:
    return frozen(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64))
