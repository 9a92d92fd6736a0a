from __future__ import annotations

import dataclasses

from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog.table import Leaf, SourceTable, TableKind
from kuvasz.source.check.privileges import least_privileges

COLUMNS = (Column(name="id", pg_type=PgType(oid=23, name="int4"), is_key=True, attnum=1),)


def table(schema: str, name: str) -> SourceTable:
    relation = Relation(
        oid=1, table=TableName(schema=schema, name=name), identity=ReplicaIdentity.DEFAULT, columns=COLUMNS
    )
    return SourceTable(
        relation=relation, kind=TableKind.TABLE, pages=1, page_bytes=8192, toast_bytes=0, row_estimate=None,
        primary_key=("id",), identity_index=(), generated=(), leaves=(),
    )  # fmt: skip


def test_the_role_gets_no_right_too_many() -> None:
    leaf = Leaf(oid=2, table=TableName(schema="parts", name="visits_1"), pages=1, page_bytes=8192, toast_bytes=0,
                row_estimate=None)  # fmt: skip
    visits = dataclasses.replace(table("public", "visits"), kind=TableKind.PARTITIONED, leaves=(leaf,))
    assert (
        least_privileges("rep", "shop", "kuvasz_shop", [table("public", "items"), visits])
        == """\
CREATE ROLE "rep" LOGIN REPLICATION PASSWORD '…';
GRANT CONNECT ON DATABASE "shop" TO "rep";
GRANT USAGE ON SCHEMA "parts", "public" TO "rep";
GRANT SELECT ON TABLE "public"."items", "public"."visits", "parts"."visits_1" TO "rep";
CREATE PUBLICATION "kuvasz_shop" FOR TABLE ONLY "public"."items", "public"."visits" WITH (publish = \
'insert, update, delete, truncate', publish_via_partition_root = true);
"""
    )


def test_names_are_quoted() -> None:
    found = least_privileges('a"b', "Shop db", "kuvasz_shop", [table("sales & co", "the items")])
    assert 'CREATE ROLE "a""b" LOGIN' in found
    assert 'ON DATABASE "Shop db" TO' in found
    assert 'GRANT SELECT ON TABLE "sales & co"."the items" TO "a""b";' in found
