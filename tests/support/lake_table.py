"""A LakeTable upon a catalog of a few lines, with an index but without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from typing_extensions import override

from kuvasz.fold.keys import Keys
from kuvasz.index.kept import IndexCheckpoints, IndexPlace
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format import table_identity
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import Field, LakeSchema, parse
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.lake.table.recovery import EmptyReader
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import LakeType, TableType, UInt32s, ValueType
from kuvasz.ports import Target

TARGET = Target(name="shop.items")


def keys_of(*numbers: int) -> Keys:
    return Keys(hi=np.full(len(numbers), 7, np.uint64), lo=np.array(numbers, np.uint64))


def at(*numbers: int) -> UInt32s:
    return np.array(numbers, np.uint32)


def file_of(path: str, rows: int) -> DataFile:
    return DataFile(path=path, rows=rows, size=rows, json="{}")


class Iceberg:
    """A table in a catalog."""

    uuid, location, format_version = "0b5e", "file:///nowhere/items", 3

    def __init__(self, target: Target, key: tuple[str, ...]) -> None:
        fields = [Field(field_id=1, name="id", type=ValueType(kind=LakeType.LONG))]
        if target.has_sid:
            fields.append(Field(field_id=2, name="sid", type=ValueType(kind=LakeType.STRING)))
        self.now = LakeSchema(schema_id=0, fields=tuple(fields))
        self.properties = table_identity.render(target, key)
        self.live: list[LiveFile] = []
        self.snapshots = SimpleNamespace(current_id=None, sequence=0, rows=None)
        self.schema = SimpleNamespace(read=lambda: self.now)
        self.layout = SimpleNamespace(read=lambda **_: Layout(), partition_names=frozenset)

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        return iter(self.live)

    def add(self, path: str, rows: int) -> None:
        data = {"file-path": path, "record-count": rows, "file-size-in-bytes": 1, "spec-id": 0, "partition": []}
        self.live.append(LiveFile(data=data, deletes=()))


class World:
    """A table, what its files hold, and which of them were read."""

    def __init__(
        self,
        folder: Path,
        kind: TableType = TableType.CLONE,
        *,
        key: tuple[str, ...] = ("id",),
        target: Target | None = None,
        kept: IndexCheckpoints | None = None,
    ) -> None:
        self.target = target or Target(name="shop.items", type=kind)
        self.iceberg = Iceberg(self.target, key)
        self.folder = folder
        self.kept = kept
        self.keys: dict[str, Keys] = {}
        self.read: list[str] = []
        self.table = self.start()

    def start(self) -> LakeTable:
        iceberg, expressions = cast("Any", self.iceberg), cast("Any", None)  # what a table needs of them
        place = IndexPlace(folder=self.folder, kept=lambda _: self.kept)
        self.table = LakeTable(iceberg, self.target, {}, place, expressions, lambda _: WorldReader(self))
        return self.table

    def add(self, path: str, *numbers: int) -> None:
        """Have a file in the catalog, and its keys."""
        self.iceberg.add(path, len(numbers))
        self.keys[path] = keys_of(*numbers)

    def places(self, *numbers: int, pending: OpenTransaction | None = None) -> list[tuple[int, int]]:
        """Return file and row of each key, as an open transaction sees them."""
        found = self.table.index.lookup(keys_of(*numbers), pending)
        return list(zip(*(part.tolist() for part in found), strict=True))


class WorldReader(EmptyReader):
    """Reads what the files of a world hold."""

    def __init__(self, world: World) -> None:
        self._world = world

    @override
    def keys(self, files: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Keys]]:
        for number, path in files:
            self._world.read.append(path)
            yield number, self._world.keys[path]

    @override
    def keep(self, files: Sequence[tuple[int, str]], rows: Sequence[int], kept: KeyFiles) -> bool:
        path_of = dict(files)
        return all(kept.write_unique(path_of[number], keys) for number, keys in self.keys(files))


def schema(*fields: tuple) -> LakeSchema:
    """(id, name, type[, initial default])."""
    return parse(json.dumps({"schema-id": 0, "fields": [
        {"id": f[0], "name": f[1], "type": f[2], "required": False} | ({"initial-default": f[3]} if f[3:] else {})
        for f in fields
    ]}))  # fmt: skip
