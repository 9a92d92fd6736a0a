"""The partitions of one Iceberg table and the order within its files, and how they are changed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from kuvasz.lake.format import layout

if TYPE_CHECKING:
    from kuvasz.lake.format.layout import Layout, Term
    from kuvasz.lake.jvm.iceberg_schema import IcebergSchema
    from kuvasz.lake.jvm.table_handle import TableHandle


class IcebergLayout:
    """The layout of one table.

    Args:
        handle: The table.
        schema: Its schema, whose fields are named.
    """

    def __init__(self, handle: TableHandle, schema: IcebergSchema) -> None:
        self._handle = handle
        self._schema = schema
        self._last: tuple[Layout, float] | None = None  #: and when it was read, monotonic seconds

    def read(self, *, age_s: float = 0.0) -> Layout:
        """Return the table's partitions and its order within files.

        Args:
            age_s: The last answer will do that is no older than that.
        """
        now_s = time.monotonic()
        if self._last is not None and now_s - self._last[1] < age_s:
            return self._last[0]
        with self._handle.asking():
            classes, table = self._handle.classes, self._handle.java
            spec, order = str(classes.spec_json(table.spec())), str(classes.order_json(table.sortOrder()))
        found = layout.parse(spec, order, self._schema.read(), self._handle.name)
        self._last = found, now_s
        return found

    def partition_names(self) -> frozenset[tuple[str, int]]:
        """Return the name of each partition field there ever was, and the id of the column that it divides by."""
        with self._handle.asking():
            to_json, specs = self._handle.classes.spec_json, self._handle.java.specs().values()
            parts = [part for spec in specs for part in json.loads(str(to_json(spec)))["fields"]]
        return frozenset((part["name"], part["source-id"]) for part in parts)

    def replace(self, now: Layout, wanted: Layout) -> None:
        """Give files to come other partitions or another order; what is there stays as it is.

        Raises:
            ForeignChange: Someone else changes the schema or the layout at the same time.
        """
        if wanted.partition != now.partition:
            self._handle.after_others(lambda: self._replace_spec(now, wanted))
        if wanted.order != now.order:
            self._handle.after_others(lambda: self._replace_order(wanted))

    def _replace_order(self, wanted: Layout) -> None:
        update = self._handle.java.replaceSortOrder()
        nulls = self._handle.classes.jvm.org.apache.iceberg.NullOrder
        for one in wanted.order:
            add = update.desc if one.descends else update.asc
            add(self._expression(one.term), nulls.NULLS_FIRST if one.nulls_first else nulls.NULLS_LAST)
        update.commit()

    def _replace_spec(self, now: Layout, wanted: Layout) -> None:
        update = self._handle.java.updateSpec()
        names = [str(field.name()) for field in self._handle.java.spec().fields()]
        taken = {field.name for field in self._schema.read().fields}
        for term, name in zip(now.partition, names, strict=True):
            if term in wanted.partition:
                taken.add(name)
            else:
                update.removeField(name)
        for term in wanted.partition:
            if term not in now.partition:
                name = layout.field_name(term, taken)
                taken.add(name)
                update.addField(name, self._expression(term))
        update.commit()

    def _expression(self, term: Term) -> Any:  # noqa: ANN401 (a Java object)
        make = self._handle.classes.jvm.org.apache.iceberg.expressions.Expressions
        if term.transform == "identity":
            return make.ref(term.column)
        arguments = (term.column, term.width) if term.width else (term.column,)
        return getattr(make, term.transform)(*arguments)


__all__ = ["IcebergLayout"]
