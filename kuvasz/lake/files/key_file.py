"""The keys of data files, on local disk: of a copy until its rows are committed, of an index until all are read.

They wait there because a table of any size must fit: 16 bytes a row. Where executors are processes of this
machine they write the files themselves, so that the keys of ten million rows need not travel through the JVM.
"""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import InternalError, LakeError
from kuvasz.fold.keys import Keys, frozen
from kuvasz.index import bulk

if TYPE_CHECKING:
    from kuvasz.model import UInt32s, UInt64s


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """The keys of some data files of one table."""

    folder: Path
    is_sorted: bool  #: whether they are kept as `bulk.of_one_file` has them, for an index that takes all at once

    def write(self, data_path: str, keys: Keys) -> None:
        """Keep the keys of a data file, in the order of its rows.

        Raises:
            LakeError: There is no room.
            InternalError: They are to be sorted, and one is there twice.
        """
        self._save(data_path, bulk.of_one_file(keys) if self.is_sorted else np.stack([keys.hi, keys.lo]))

    def write_unique(self, data_path: str, keys: Keys) -> bool:
        """Keep the keys of a data file, which are to be sorted, if none is there twice; return whether that is so.

        Args:
            data_path: The data file.
            keys: The keys, in the order of its rows.

        Raises:
            LakeError: There is no room.
        """
        try:
            self.write(data_path, keys)
        except InternalError:
            return False
        return True

    def _save(self, data_path: str, kept: UInt64s) -> None:
        path = self._path(data_path)
        try:
            path.unlink(missing_ok=True)  # what is mapped from it stays
            kept.tofile(path)
        except OSError as error:
            message = f"the keys of data files cannot be kept below {self.folder.parent}: {error}"
            raise LakeError(message, hint="make room; it is tried again") from error

    def records(self, data_path: str) -> UInt64s:
        """Return what is kept of a data file whose keys are sorted, mapped from disk."""
        return self._mapped(data_path).reshape(-1, 2)

    def leave_out(self, data_path: str, keys: Keys) -> UInt32s:
        """Keep the rows of some keys no more; sorted keys alone can do that.

        Args:
            data_path: The data file.
            keys: The keys.

        Returns:
            Which rows of the data file they are, ascending.

        Raises:
            LakeError: There is no room.
        """
        rows = bulk.rows_of(self.records(data_path), keys)
        if len(rows):
            self.leave_out_rows(data_path, rows)
        return rows

    def leave_out_rows(self, data_path: str, rows: UInt32s) -> None:
        """Keep some rows no more; sorted keys alone can do that.

        Args:
            data_path: The data file.
            rows: Their positions in it.

        Raises:
            LakeError: There is no room.
        """
        records = self.records(data_path)
        self._save(data_path, records[~np.isin(records[:, 1].astype(np.uint32), rows)])

    def ascending(self, data_path: str) -> Keys:
        """Return the keys of a data file if they are sorted, in their order."""
        return bulk.keys_of(self.records(data_path))

    def keys(self, data_path: str) -> Keys:
        """Return the keys of a data file if they are not sorted, mapped from disk."""
        hi, lo = self._mapped(data_path).reshape(2, -1)
        return Keys(hi=hi, lo=lo)

    def _mapped(self, data_path: str) -> UInt64s:
        # Not numpy's own format: it reads its head by `ast`, which threads of Python 3.11 and 3.12 cannot do at once
        # (SystemError: AST constructor recursion depth mismatch, seen with 400 sources).
        with self._path(data_path).open("rb") as file:
            if not file.seek(0, 2):  # nothing cannot be mapped
                return frozen(np.zeros(0, np.uint64))
            return frozen(np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint64))

    def _path(self, data_path: str) -> Path:
        return self.folder / f"{data_path.rpartition('/')[2]}.keys"


__all__ = ["KeyFiles"]
