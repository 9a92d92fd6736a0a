"""A table with columns on both sides, for pages that show them."""

from __future__ import annotations

import dataclasses

from kuvasz import typemap
from kuvasz.app import App
from kuvasz.config.model import TableConfig
from kuvasz.model import Column, Relation, ReplicaIdentity
from kuvasz.ports import Feed
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules.targets import target_of

_TYPES = {one.name: one for one in typemap.BUILTIN.values()}

_COLUMNS = {
    "id": "int8", "sku": "text", "title": "text", "price": "numeric", "email": "text", "tags": "_text",
    "internal_note": "text", "updated_at": "timestamptz",
}  # fmt: skip

#: What the map says of it.
RULE = TableConfig(
    filter="status <> 'draft'", mask={"email": "hmac"}, exclude=("internal_note",), partition_by=("bucket(16, id)",),
    sort_by=("id",), types={"price": "decimal(12,2)"},
)  # fmt: skip


def have_columns(app: App) -> None:
    """Let the first table of an application's first source have columns there, and in the lake."""
    (sync, *_) = app.sources
    source = sync.source
    spec = next(one for one in source.tables if one.target == "items")
    ruled = dataclasses.replace(spec, config=RULE)
    columns = tuple(
        Column(name=name, pg_type=_TYPES[kind], attnum=at, is_key=name == "id")
        for at, (name, kind) in enumerate(_COLUMNS.items(), 1)
    )
    relation = Relation(oid=7, table=spec.table, identity=ReplicaIdentity.DEFAULT, columns=columns)
    others = tuple(one for one in source.tables if one is not spec)
    sync.tables.update(dataclasses.replace(source, tables=(ruled, *others)))
    sync.tables.tables[spec.key] = SourceTable(
        relation=relation, kind=TableKind.TABLE, page_bytes=0, row_estimate=None, primary_key=("id",),
        identity_index=(), generated=("total",), leaves=(),
    )  # fmt: skip
    feed = Feed(target=spec.identifier, source=source.name, sid=source.sid, table=spec.table)
    app.lake.prepare(target_of(ruled), feed, relation)
