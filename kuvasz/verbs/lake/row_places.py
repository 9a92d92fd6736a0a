"""Where the rows of a key lie in each of some snapshots of a lake table, found by bounds of files.

A manifest is read once, whatever snapshots have it; of files whose bounds let them have the key, its columns alone,
and of row groups whose statistics do; a file's deleted positions where a row was found, and of its vectors, which
only grow, as many as a bisection needs.
"""

from __future__ import annotations

import bisect
import collections
import concurrent.futures
import dataclasses
import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.files.row_search import PositionDeletes, positions_of
from kuvasz.verbs.lake.manifests import FORM, ManifestReader

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyroaring import BitMap64

    from kuvasz.verbs.lake.row_key import RowKey

#: Files that are read side by side: most of the time is a store's answer.
_THREADS = 16

#: Where in an entry these are; PyIceberg has no names for them.
_REFERENCED, _OFFSET, _SIZE = (
    [field.name for field in DATA_FILE_TYPE[FORM].fields].index(name)
    for name in ("referenced_data_file", "content_offset", "content_size_in_bytes")
)

#: Id of the column of position delete files that names the data file (Iceberg spec, "Reserved Field IDs").
_PATH_ID = 2147483546


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Where a row lies."""

    file: str
    position: int  #: 0 is the first row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFiles:
    """What counts of the files of one manifest."""

    data: frozenset[str] = frozenset()  #: those that may have the key
    deletes: Mapping[str | None, Sequence[PositionDeletes]] = dataclasses.field(default_factory=dict)  #: by data file
    known: int = 0  #: data files, whether they may have the key or not

    def about(self, path: str) -> tuple[PositionDeletes, ...]:
        """Return the delete files that may be about a data file."""
        return tuple(found for name in (path, None) for found in self.deletes.get(name, ()))


class RowPlaces:
    """The places of the rows of one key.

    Args:
        table: The table, as PyIceberg has it.
        key: What the rows have.
    """

    def __init__(self, table: Table, key: RowKey) -> None:
        self._table = table
        self._properties: Mapping[str, str] = table.io.properties
        self._key = key
        self._reader = ManifestReader(table.io)
        self._evaluator = _InclusiveMetricsEvaluator(table.schema(), key.condition)
        self._deleted: dict[tuple[PositionDeletes, str], BitMap64] = {}
        self.files_read = 0  #: data files whose key columns were read
        self.files_known = 0  #: data files that were looked at by their bounds

    def of(self, snapshots: Sequence[Snapshot]) -> list[tuple[Place, ...]]:
        """Return what is there in each of some snapshots, which are ancestors of each other, oldest first.

        Raises:
            LakeError: The table has deletes that kuvasz does not write.
            FileNotFoundError: Files went meanwhile.
        """
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            lists = list(pool.map(self._reader.of_list, (one.manifest_list for one in snapshots)))
            distinct = {manifest.manifest_path: manifest for one in lists for manifest in one}
            read = dict(zip(distinct, pool.map(self._read, distinct.values()), strict=True))
            data = sorted({path for one in read.values() for path in one.data})
            self.files_known = sum(one.known for one in read.values())
            self.files_read = len(data)
            found = dict(zip(data, pool.map(self._positions, data), strict=True))
        inside = [{manifest.manifest_path for manifest in one} for one in lists]
        there: list[list[Place]] = [[] for _ in snapshots]
        for path, positions in found.items():
            if positions:
                for number, position in self._lives(path, positions, read, inside):
                    there[number].append(Place(file=path, position=position))
        return [tuple(sorted(places)) for places in there]

    def _lives(
        self, path: str, positions: Sequence[int], read: Mapping[str, ManifestFiles], inside: Sequence[Set[str]]
    ) -> Iterator[tuple[int, int]]:
        """Return in which snapshots which rows of a data file are.

        Args:
            path: The file.
            positions: Where the rows of the key lie in it.
            read: Each manifest.
            inside: The manifests of each snapshot.
        """
        having = {name for name, one in read.items() if path in one.data}
        about = {name: deletes for name, one in read.items() if (deletes := one.about(path))}
        numbers = [number for number, names in enumerate(inside) if not having.isdisjoint(names)]
        for position in positions:

            def is_deleted(number: int, position: int = position) -> bool:
                deletes = (one for name in inside[number] & about.keys() for one in about[name])
                return any(position in self._positions_in(one, path) for one in deletes)

            live = bisect.bisect_left(numbers, 1, key=is_deleted)
            yield from ((number, position) for number in numbers[:live])

    def _read(self, manifest: ManifestFile) -> ManifestFiles:
        """Return the files of a manifest."""
        is_data, known = manifest.content is ManifestContent.DATA, 0
        data: set[str] = set()
        deletes: dict[str | None, list[PositionDeletes]] = collections.defaultdict(list)
        for entry in self._reader.entries(manifest.manifest_path):
            if entry.status is ManifestEntryStatus.DELETED:
                continue
            file = entry.data_file
            if not is_data:
                found = self._delete_file(file)
                deletes[found.data_file].append(found)
                continue
            known += 1
            if self._may_match(file):
                data.add(file.file_path)
        return ManifestFiles(data=frozenset(data), deletes=deletes, known=known)

    def _may_match(self, file: DataFile) -> bool:
        try:
            return bool(self._evaluator.eval(file))
        except (ValueError, TypeError, struct.error):  # bounds of a narrower type, from before a column was widened
            return True

    def _delete_file(self, file: DataFile) -> PositionDeletes:
        if file.content is DataFileContent.EQUALITY_DELETES:
            message = f"{place_of(table='.'.join(self._table.name()))}: it has equality deletes"
            raise LakeError(message, hint="another engine wrote them: rewrite its files, then trace the row again")
        if file.file_format is not FileFormat.PARQUET:
            return PositionDeletes(
                path=file.file_path, data_file=file[_REFERENCED], offset=file[_OFFSET], size=file[_SIZE]
            )
        low, high = ((bounds or {}).get(_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
        only = low.decode() if low is not None and low == high else file[_REFERENCED]
        return PositionDeletes(path=file.file_path, data_file=only)

    def _positions(self, path: str) -> list[int]:
        found: list[int] = positions_of(self._properties, path, self._key.fields, self._key.values).tolist()
        return found

    def _positions_in(self, one: PositionDeletes, path: str) -> BitMap64:
        if (one, path) not in self._deleted:
            self._deleted[one, path] = one.positions(self._properties, path)
        return self._deleted[one, path]


__all__ = ["Place", "RowPlaces"]
