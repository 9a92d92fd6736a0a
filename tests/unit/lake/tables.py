"""A LakeTable upon a catalog of a few lines, with an index but without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from kuvasz.fold.keys import Keys
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format import table_identity
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import LakeType, TableType, ValueType
from kuvasz.ports import Target

TARGET = Target(name="shop.items")


def keys_of(*numbers: int) -> Keys:
    return Keys(hi=np.full(len(numbers), 7, np.uint64), lo=np.array(numbers, np.uint64))


def file_of(path: str, rows: int) -> DataFile:
    return DataFile(path=path, rows=rows, size=rows, json="{}")


class Iceberg:
    """A table in a catalog."""

    uuid, location, format_version, snapshot_id = "0b5e", "file:///nowhere/items", 3, None

    def __init__(self, target: Target, key: tuple[str, ...]) -> None:
        fields = (Field(field_id=1, name="id", type=ValueType(kind=LakeType.LONG)),)
        self.now = LakeSchema(schema_id=0, fields=fields)
        self.properties = table_identity.render(target, key)
        self.live: list[LiveFile] = []

    def schema(self) -> LakeSchema:
        return self.now

    def layout(self) -> Layout:
        return Layout()

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        return iter(self.live)

    def add(self, path: str, rows: int) -> None:
        data = {"file-path": path, "record-count": rows, "file-size-in-bytes": 1, "spec-id": 0, "partition": []}
        self.live.append(LiveFile(data=data, deletes=()))


class World:
    """A table, what its files hold, and which of them were read."""

    def __init__(self, folder: Path, kind: TableType = TableType.CLONE, *, key: tuple[str, ...] = ("id",)) -> None:
        self.target = Target(name="shop.items", type=kind)
        self.iceberg = Iceberg(self.target, key)
        self.folder = folder
        self.keys: dict[str, Keys] = {}
        self.read: list[str] = []
        self.table = self.start()

    def start(self) -> LakeTable:
        self.table = LakeTable(self.iceberg, self.target, {}, self.folder, lambda _: self._read, None)
        return self.table

    def _read(self, files: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Keys]]:
        for number, path in files:
            self.read.append(path)
            yield number, self.keys[path]

    def add(self, path: str, *numbers: int) -> None:
        """Have a file in the catalog, and its keys."""
        self.iceberg.add(path, len(numbers))
        self.keys[path] = keys_of(*numbers)

    def places(self, *numbers: int) -> list[tuple[int, int]]:
        """Where the index sends keys."""
        return list(zip(*(found.tolist() for found in self.table.lookup(keys_of(*numbers), None)), strict=True))
