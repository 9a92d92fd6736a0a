"""The columns of a lake table upon a catalog that takes steps of a schema."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from kuvasz.lake.definition.columns import Columns
from kuvasz.lake.executors.expressions import Projection
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.lake.format.schema_steps import Step
from kuvasz.model import Relation, SourcePosition
from kuvasz.ports import Feed, Target
from tests.support.local_catalog import changed
from tests.support.source_table import NAME, SourceTable

TARGET = Target(name="shop.items")

HERE = SourcePosition(lsn=1, commit_lsn=1, rows=0, system_id="1")


def feed(source: str = "eu") -> Feed:
    return Feed(target=TARGET.name, source=source, sid=None, table=NAME)


class Expressions:
    """A map without any."""

    def project(self, target: Target, relation: Relation, place: str, key: tuple[str, ...]) -> Projection:
        return Projection(relation=relation, columns=tuple(range(len(relation.columns))), transform=None)


class Iceberg:
    """A table in a catalog that takes steps."""

    def __init__(self, source: SourceTable) -> None:
        self.name = TARGET.name
        self.now = LakeSchema(schema_id=0, fields=wanted(TARGET, source.catalog()))
        self.properties: dict[str, str] = {}
        self.commits: list[tuple[str, ...]] = []
        self.earlier: dict[str, str | None] = {}
        self.partitions: frozenset[tuple[str, int]] = frozenset()  #: names of partition fields, and what they divide
        self.layout = SimpleNamespace(partition_names=lambda: self.partitions)

    @property
    def schema(self) -> Iceberg:
        return self  # its schema is all of it

    @property
    def id(self) -> int:
        return self.now.schema_id

    def read(self) -> LakeSchema:
        return self.now

    def refresh(self) -> None:
        pass

    def earlier_columns(self) -> dict[str, str | None]:
        return self.earlier

    def change(self, steps: Iterable[Step], properties: Callable[[LakeSchema], Mapping[str, str | None]]) -> None:
        steps = list(steps)
        for step in steps:
            self.take(step)
        self._put(properties(self.now))
        self.commits.append(tuple(type(step).__name__ for step in steps))

    def set_properties(self, properties: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        self._put({**properties, **dict.fromkeys(removed)})
        self.commits.append(("properties",))

    def _put(self, properties: Mapping[str, str | None]) -> None:
        self.properties |= {name: text for name, text in properties.items() if text is not None}
        for name in (name for name, text in properties.items() if text is None):
            self.properties.pop(name, None)

    def remove_properties(self, names: Iterable[str]) -> None:
        for name in names:
            del self.properties[name]

    def take(self, step: Step) -> None:
        self.now = changed(self.now, step)

    def drop(self, name: str) -> None:
        fields = tuple(field for field in self.now.fields if field.name != name)
        self.now = LakeSchema(schema_id=self.now.schema_id + 1, fields=fields)
        self.earlier[name] = None


class World:
    """A source table, and a lake table with just what its columns look at."""

    def __init__(self) -> None:
        self.source = SourceTable()
        self.iceberg = Iceberg(self.source)
        self.positions: dict[str, SourcePosition] = {}
        self.forgotten: list[str] = []
        self.definition = SimpleNamespace(
            name=TARGET.name, target=TARGET, schema=self.iceberg.now, key=self.source.key, seed=bytes(16),
            format_version=3, is_bag=False, lock=threading.RLock(), read_again=self._read_again,
        )  # fmt: skip
        self.resets: list[str] = []
        self.index = SimpleNamespace(reset=lambda: self.resets.append("reset"))
        self.columns = self.read()
        self.evolve()
        self.positions["eu"] = HERE
        self.iceberg.properties |= self.columns.made_by("eu")  # as a copy has it

    def read(self) -> Columns:
        """Begin with what is in the catalog."""
        build: Any = Columns  # upon stand-ins
        found: Columns = build(
            self.iceberg, self.definition, self.index.reset, self.positions, Expressions(), self.forgotten.append
        )
        return found

    def _read_again(self, key: tuple[str, ...] | None = None) -> bool:
        self.definition.schema = self.iceberg.now
        self.definition.key = self.definition.key if key is None else key
        return False

    def evolve(self, source: str = "eu", *, is_streaming: bool = False, **changed: Any) -> tuple[str, ...]:
        target = dataclasses.replace(TARGET, **changed)
        return self.columns.evolve(target, feed(source), self.source.catalog(), is_streaming=is_streaming)
