"""Catalog queries with names, each answering for any number of tables at once, and the values made of them.

`load_relations` takes eight queries at most, for one table or a thousand. Nothing but SELECT on the system catalogs
is needed, which every role has. None takes a lock on a table, so one that somebody has locked is looked at as any
other: what would is left to `kuvasz.source.catalog.sizes`. See the manual, chapter 53 "System Catalogs".
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from psycopg.rows import namedtuple_row

from kuvasz import lsn
from kuvasz.errors import SourceError
from kuvasz.model import LONG, NOTHING, Column, PgType, Relation, ReplicaIdentity, TableName, Uniqueness
from kuvasz.source import failure
from kuvasz.source.catalog import key, membership, type_facts
from kuvasz.source.catalog.key import Key, UniqueIndex
from kuvasz.source.catalog.table import Ancestor, Leaf, SourceTable, TableKind
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

#: Characters of a name: PostgreSQL's are of 63 bytes, unless it was built with others (NAMEDATALEN).
_MOST_NAME = 1024

#: The same of whatever else a catalog says in one text.
_MOST_TEXT = 64 << 10

#: Names of tables, and keys, that are kept once: those of sources that are alike.
_MOST_ALIKE = 4096

_OTHER_SERVER = "something else than a PostgreSQL server answers; it is tried again"

#: A named tuple; the query names its fields.
Row: TypeAlias = Any

_RELATION_FIELDS = """
c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS relkind,
c.relpersistence::text AS persistence, c.relreplident::text AS identity, c.relispartition AS is_partition,
c.reltuples::float8 AS tuples, row_security_active(c.oid) AS has_policies,
current_setting('block_size')::int AS page_bytes,
c.relfilenode::bigint AS file, c.relnatts::int AS attributes,
ARRAY(SELECT a.attnum::int FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attisdropped
    ORDER BY a.attnum) AS dropped,
pg_has_role(c.relowner, 'USAGE') AS is_owned,
has_schema_privilege(n.oid, 'USAGE') AND (has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (
    SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT'))) AS can_select
"""

_RELATIONS = f"""
SELECT {_RELATION_FIELDS}, c.relhassubclass AS may_have_children
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

_RELATIVES = """
SELECT c.oid::bigint AS oid, above.ancestors, below.children
FROM pg_class c
CROSS JOIN LATERAL (
    SELECT array_agg(ARRAY[ac.oid::text, an.nspname::text, ac.relname::text] ORDER BY a.level) AS ancestors
    FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, level)
    JOIN pg_class ac ON ac.oid = a.relid JOIN pg_namespace an ON an.oid = ac.relnamespace
    WHERE c.relispartition AND ac.oid <> c.oid) AS above
CROSS JOIN LATERAL (
    WITH RECURSIVE tree (oid) AS (
        SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'r'
        UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
    SELECT array_agg(ARRAY[tn.nspname::text, tc.relname::text] ORDER BY tn.nspname, tc.relname) AS children
    FROM tree JOIN pg_class tc ON tc.oid = tree.oid JOIN pg_namespace tn ON tn.oid = tc.relnamespace) AS below
WHERE c.oid = ANY(%s::oid[])
"""

# Not pg_partition_tree(), which shows the tree of today under whatever snapshot it is asked.
_LEAVES = f"""
WITH RECURSIVE tree (root, oid) AS (
    SELECT root.oid, root.oid FROM unnest(%s::oid[]) AS root (oid)
    UNION ALL
    SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending)
SELECT {_RELATION_FIELDS}, tree.root::bigint AS root
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid <> tree.root AND c.relkind <> 'p'
ORDER BY n.nspname, c.relname
"""

#: Characters of what rows of before show in a column that are read; of more a digest. PostgreSQL compresses it: a
#: table may have a gigabyte of it, and it is read with each look.
_MOST_MISSING = 8192

_COLUMNS = f"""
SELECT attrelid::bigint AS relation, attname::text AS name, attnum::int AS attnum, atttypid::bigint AS type,
    atttypmod AS typmod, attnotnull AS is_not_null, attgenerated <> '' AS is_generated,
    attgenerated = 's' AS is_stored, attndims > 1 AS is_grid,
    attcollation >= 16384 AS has_own_collation,
    atthasdef OR atthasmissing OR attidentity <> '' AS has_default, pg_attribute.xmin::text::bigint AS version,
    CASE WHEN atthasmissing THEN left(shown.value, {_MOST_MISSING}) END AS missing,
    CASE WHEN atthasmissing AND length(shown.value) > {_MOST_MISSING}
        THEN hashtextextended(shown.value COLLATE "C", 0) END AS digest
FROM pg_attribute CROSS JOIN LATERAL (SELECT coalesce((attmissingval::text::text[])[1], '') AS value) AS shown
WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 AND NOT attisdropped
ORDER BY attrelid, attnum
"""

# The rows of a partitioned table are its partitions', and so is what they show in a column that came after them.
_MISSING_BELOW = f"""
SELECT below.root::bigint AS relation, attname::text AS name,
    min(left(shown.value, {_MOST_MISSING})) AS missing,
    count(DISTINCT hashtextextended(shown.value COLLATE "C", 0)) AS values,
    CASE WHEN max(length(shown.value)) > {_MOST_MISSING}
        THEN min(hashtextextended(shown.value COLLATE "C", 0)) END AS digest
FROM unnest(%s::oid[], %s::oid[]) AS below (oid, root) JOIN pg_attribute ON attrelid = below.oid
CROSS JOIN LATERAL (SELECT coalesce((attmissingval::text::text[])[1], '') AS value) AS shown
WHERE attnum > 0 AND NOT attisdropped AND atthasmissing
GROUP BY below.root, attname
"""

# What messages have of a table where a publication says so: a column list, or stored generated columns (version 18);
# and the mark of a row filter.
_LISTS = f"""
SELECT c.oid::bigint AS relation, r.prattrs::int2[]::int[] AS columns, {{generated}} AS has_generated,
    CASE WHEN r.prattrs IS NOT NULL OR {{generated}} THEN coalesce(r.xmin::text::bigint, 0) ELSE 0 END AS version,
    coalesce({membership.FILTER_MARK}, '') AS row_filter
FROM pg_publication p CROSS JOIN unnest(%s::oid[]) AS c (oid)
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE p.pubname = ANY(%s::text[]) AND (r.prattrs IS NOT NULL OR r.prqual IS NOT NULL OR {{generated}})
"""
_LISTS_SINCE, _GENERATED_SINCE = 150000, 180000

# A column that is NOT NULL may have NULLs all the same, while nobody has looked (version 18, NOT VALID), and
# PostgreSQL takes its index for a replica identity.
_INDEXES = """
SELECT i.indrelid::bigint AS relation, c.relname::text AS name, i.indisprimary AS is_primary,
    i.indisreplident AS is_identity, i.indimmediate AS is_immediate, i.indisvalid AS is_valid,
    i.indpred IS NOT NULL AS is_partial, i.indexrelid::bigint AS index, c.relfilenode::bigint AS file,
    coalesce((SELECT o.oid FROM pg_constraint o WHERE o.conrelid = i.indrelid AND o.conindid = i.indexrelid
        AND o.contype IN ('p', 'u')), 0)::bigint AS constraint_oid,
    array_agg(coalesce(a.attname::text, '') ORDER BY k.place) AS columns,
    bool_and(coalesce(a.attnotnull, false) AND NOT EXISTS (SELECT FROM pg_constraint n
        WHERE n.conrelid = i.indrelid AND n.contype = 'n' AND NOT n.convalidated AND n.conkey = ARRAY[a.attnum])
    ) AS is_not_null,
    bool_or(coalesce(a.attgenerated, '') <> '') AS has_generated
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indrelid, c.relname, i.indisprimary, i.indisreplident, i.indimmediate, i.indisvalid,
    i.indpred IS NOT NULL, c.relfilenode
ORDER BY i.indrelid, c.relname
"""

# A true array prints by array_out; int2vector and point have elements too, but a syntax of their own.
_TYPES = """
WITH RECURSIVE wanted (oid) AS (
    SELECT unnest(%s::oid[])
    UNION
    SELECT related.oid FROM wanted JOIN pg_type t ON t.oid = wanted.oid
    CROSS JOIN LATERAL (VALUES
        (CASE WHEN t.typoutput = 'pg_catalog.array_out'::regproc THEN t.typelem END),
        (CASE WHEN t.typtype = 'd' THEN t.typbasetype END)) AS related (oid)
    WHERE related.oid <> 0)
SELECT t.oid::bigint AS oid, t.typname::text AS name, n.nspname::text AS schema, t.typtype::text AS category,
    CASE WHEN t.typoutput = 'pg_catalog.array_out'::regproc AND t.typtype <> 'd'
        THEN t.typelem::bigint END AS element,
    CASE WHEN t.typtype = 'd' THEN t.typbasetype::bigint END AS base,
    t.typtypmod AS base_typmod, coalesce(e.typdelim, t.typdelim)::text AS delimiter
FROM wanted JOIN pg_type t ON t.oid = wanted.oid JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typoutput = 'pg_catalog.array_out'::regproc
"""

_TABLES = """
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND (NOT c.relispartition OR %s)
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY n.nspname, c.relname
"""

_SERVER = """
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS version_text,
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END AS timeline,
    CASE WHEN NOT pg_is_in_recovery() AND pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()
        THEN pg_current_wal_flush_lsn()::text END AS wal_end,
    current_setting('wal_level') AS wal_level,
    current_setting('max_replication_slots')::int AS max_slots,
    (SELECT count(*)::int FROM pg_get_replication_slots()) AS used_slots,
    current_setting('max_wal_senders')::int AS max_senders,
    (SELECT count(*)::int FROM pg_stat_get_wal_senders()) AS used_senders,
    pg_size_bytes(current_setting('max_slot_wal_keep_size')) AS keep_bytes,
    pg_is_in_recovery() AS is_in_recovery,
    current_setting('server_encoding') AS encoding, current_database()::text AS database,
    current_user::text AS role,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started_us
"""

_WAL_END = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text
    AS wal_end
"""

_NAMES = """
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s::oid[]) AND c.relkind IN ('r', 'p')
"""

_NAMED = """
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relkind IN ('r', 'p')
"""

_UNSUPPORTED = {"v": "it is a view", "m": "it is a materialized view", "f": "it is a foreign table"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    version: int  #: as in server_version_num: 180001 is 18.1
    version_text: str
    system_identifier: int  #: of the cluster; the same after a failover to a standby
    timeline: int
    wal_level: str
    max_slots: int
    used_slots: int
    max_senders: int
    used_senders: int
    max_slot_wal_keep_bytes: int | None  #: None: without limit
    wal_end: int | None  #: LSN where the WAL ends; None: not all of it is on disk yet, or others write it
    is_in_recovery: bool
    encoding: str
    database: str
    role: str
    started_us: int  #: when it was started, µs since 1970 UTC

    @property
    def major(self) -> int:
        """The major version: 18."""
        return self.version // 10000


def wal_end(connection: psycopg.Connection[Any]) -> int:
    """Return the end of the server's WAL that a slot could have read.

    Raises:
        SourceError: The query failed.
    """
    (row,) = _rows(connection, "read the end of the WAL", _WAL_END)
    return lsn.parse(row.wal_end)


def server(connection: psycopg.Connection[Any]) -> ServerFacts:
    """Return what the server says of itself.

    Raises:
        SourceError: The query failed.
    """
    (row,) = _rows(connection, "read the server's settings", _SERVER)
    facts = row._asdict()
    if not isinstance(facts["system_identifier"], int):  # it is noted with the rows of its tables
        raise SourceError(f"{place(connection)}: its system identifier is no number", hint=_OTHER_SERVER)
    keep_bytes, wal_end = facts.pop("keep_bytes"), facts.pop("wal_end")
    return ServerFacts(
        max_slot_wal_keep_bytes=None if keep_bytes < 0 else keep_bytes,
        wal_end=None if wal_end is None else lsn.parse(wal_end), **facts,
    )  # fmt: skip


def list_tables(connection: psycopg.Connection[Any], *, partitions: bool = False) -> list[TableName]:
    """Return the permanent tables outside the system's schemas, by name; partitions only if wanted.

    Raises:
        SourceError: The query failed.
    """
    rows = _rows(connection, "list the tables", _TABLES, partitions)
    return [TableName(schema=row.schema, name=row.name) for row in rows]


def names_of(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, TableName]:
    """Return the names that tables have now by their OIDs; those that are gone are left out.

    Raises:
        SourceError: The query failed.
    """
    rows = _rows(connection, "read the names of tables", _NAMES, sorted(set(oids)))
    return {row.oid: TableName(schema=row.schema, name=row.name) for row in rows}


def tables_named(connection: psycopg.Connection[Any], tables: Iterable[TableName]) -> frozenset[TableName]:
    """Return those of the names under which there is a table; views and foreign tables are none.

    Raises:
        SourceError: The query failed.
    """
    wanted = list(dict.fromkeys(tables))
    names = [table.schema for table in wanted], [table.name for table in wanted]
    rows = _rows(connection, "look for tables", _NAMED, *names)
    return frozenset(TableName(schema=row.schema, name=row.name) for row in rows)


def load_relation(
    connection: psycopg.Connection[Any], table: TableName, publications: Sequence[str] = ()
) -> SourceTable | None:
    """Return one table, or None if there is none of that name; see `load_relations`.

    Raises:
        SourceError: A query failed.
    """
    return load_relations(connection, [table], publications).get(table)


def load_relations(
    connection: psycopg.Connection[Any], tables: Iterable[TableName], publications: Sequence[str] = ()
) -> dict[TableName, SourceTable]:
    """Return those of the tables that exist.

    In a transaction with an exported snapshot this gives the tables as that snapshot knows them.

    Args:
        connection: An ordinary session.
        tables: Their names.
        publications: Names of those that a stream of them names: what messages have of them is asked for.

    Raises:
        SourceError: A query failed.
    """
    wanted = list(dict.fromkeys(tables))
    doing = "read the catalog"
    found = _rows(connection, doing, _RELATIONS, [t.schema for t in wanted], [t.name for t in wanted])
    related = [row.oid for row in found if row.is_partition or row.may_have_children]
    relatives = _rows(connection, doing, _RELATIVES, related) if related else []
    roots = [row.oid for row in found if row.relkind == "p"]
    leaves = _grouped(_rows(connection, doing, _LEAVES, roots) if roots else [], "root")
    oids = [row.oid for row in found]
    columns = _grouped(_rows(connection, doing, _COLUMNS, oids), "relation")
    leaf_oids = [leaf.oid for rows in leaves.values() for leaf in rows]
    indexes = _grouped(_rows(connection, doing, _INDEXES, oids + leaf_oids), "relation")
    type_oids = {column.type for rows in columns.values() for column in rows}
    types, facts = load_types(connection, type_oids), type_facts.load(connection, type_oids)
    lists = {row.relation: row for row in _lists(connection, doing, oids, publications)}
    is_strict = connection.info.server_version >= _GENERATED_SINCE
    catalog = _Catalog(
        relatives={row.oid: row for row in relatives}, columns=columns, indexes=indexes, leaves=leaves, types=types,
        facts=facts, lists=lists,
        missing=_missing_below(connection, doing, leaves),
        unsent={oid: _unsent(rows, lists.get(oid)) for oid, rows in columns.items()} if is_strict else {},
        has_row_filters=connection.info.server_version >= _LISTS_SINCE,
    )  # fmt: skip
    loaded = (_table(row, catalog) for row in found)
    return {table.table: table for table in loaded}


def load_types(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, PgType]:
    """Return types by OID, with the element types of arrays and the base types of domains resolved.

    The server is not asked for the most common ones.

    Returns:
        The types asked for and those they rest on; an OID without a type is left out.

    Raises:
        SourceError: The query failed.
    """
    found: dict[int, PgType] = {}
    missing = []
    for oid in sorted(set(oids)):
        known = type_facts.BUILT_IN.get(oid)
        if known is None:
            missing.append(oid)
        while known is not None:
            found[known.oid] = known
            known = known.element
    return found | ask_types(connection, missing) if missing else found


def ask_types(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, PgType]:
    """Return what a server says of types; see `load_types`."""
    rows = {row.oid: row for row in _rows(connection, "read the types", _TYPES, list(oids))}
    built: dict[int, PgType] = {}

    def build(oid: int) -> PgType | None:
        row = rows.get(oid)
        if row is None:
            return None
        if oid not in built:
            built[oid] = PgType(
                oid=oid, name=row.name, schema=row.schema, category=row.category, delimiter=row.delimiter,
                element=None if row.element is None else build(row.element),
                base=None if row.base is None else build(row.base), base_typmod=row.base_typmod,
            )  # fmt: skip
        return built[oid]

    for oid in rows:
        build(oid)
    return built


class _Catalog(NamedTuple):
    relatives: Mapping[int, Row]
    columns: Mapping[int, Sequence[Row]]
    indexes: Mapping[int, Sequence[Row]]
    leaves: Mapping[int, Sequence[Row]]
    types: Mapping[int, PgType]
    facts: Mapping[int, tuple[str, ...]]
    lists: Mapping[int, Row]
    missing: Mapping[tuple[int, str], str]
    unsent: Mapping[int, Sequence[str]]
    has_row_filters: bool


def _table(row: Row, catalog: _Catalog) -> SourceTable:
    name = _named(row.schema, row.name)
    identity = ReplicaIdentity(row.identity)
    indexes = _indexes(catalog, row.oid)
    leaves = catalog.leaves.get(row.oid, ())
    unsent = catalog.unsent.get(row.oid, ())
    relatives = catalog.relatives.get(row.oid)
    chosen = _with_leaves(key.decide(name, identity, indexes, unsent), identity, leaves, catalog, unsent)
    rows = (row, *leaves)
    why_unsupported = _why_unsupported(row, leaves)
    return SourceTable(
        relation=Relation(
            oid=row.oid, table=name, identity=identity, columns=_columns(row.oid, catalog, chosen),
            file=row.file if row.relkind == "r" else 0, attributes=row.attributes, dropped=tuple(row.dropped),
            leaf_files=_leaf_files(leaves), uniqueness=chosen.uniqueness,
            generated=_columns(row.oid, catalog, chosen, are_generated=True), sent=_sent(row.oid, catalog),
            list_version=catalog.lists[row.oid].version if row.oid in catalog.lists else 0,
            versions=_versions(row.attributes, catalog.columns.get(row.oid, ())),
        ),
        kind=_kind(row), page_bytes=row.page_bytes, row_estimate=_estimate(leaves or (row,)),
        primary_key=next((index.columns for index in indexes if index.is_primary), ()),
        identity_index=next((index.columns for index in indexes if index.is_identity), ()),
        generated=tuple(column.name for column in catalog.columns.get(row.oid, ()) if column.is_generated),
        leaves=tuple(_leaf(leaf) for leaf in leaves),
        ancestors=tuple(
            Ancestor(oid=int(oid), table=TableName(schema=schema, name=name))
            for oid, schema, name in (relatives and relatives.ancestors) or ()
        ),
        children=tuple(
            TableName(schema=schema, name=name) for schema, name in (relatives and relatives.children) or ()
        ),
        unique=tuple(index.columns for index in indexes if index.is_stable and index.is_not_null),
        why_no_key="" if why_unsupported else chosen.why_not, mend="" if why_unsupported else chosen.mend,
        can_update=chosen.can_update, why_unsupported=why_unsupported, is_owned=row.is_owned,
        is_logged=all(part.persistence == "p" for part in rows if part.relkind != "f"),
        can_select=all(part.can_select for part in rows),
        unreadable=tuple(TableName(schema=p.schema, name=p.name) for p in rows if not p.can_select),
        has_policies=any(part.has_policies for part in rows),
        may_filter=catalog.has_row_filters,
        filter_mark=catalog.lists[row.oid].row_filter if row.oid in catalog.lists else "",
        own_collations=frozenset(
            column.attnum for column in catalog.columns.get(row.oid, ()) if column.has_own_collation
        ) or NOTHING,
    )  # fmt: skip


@functools.lru_cache(maxsize=_MOST_ALIKE)
def _named(schema: str, name: str) -> TableName:
    """Return the name of a table; of thousands of sources that are alike it is one object."""
    return TableName(schema=schema, name=name)


@functools.lru_cache(maxsize=_MOST_ALIKE)
def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns that were given first."""
    return tuple(map(sys.intern, names))


def _with_leaves(
    chosen: Key, identity: ReplicaIdentity, leaves: Sequence[Row], catalog: _Catalog, unsent: Sequence[str]
) -> Key:
    """Return the key of a partitioned table, or what keeps its partitions from having it."""
    if not chosen.can_update:
        return chosen
    odd, mends = [], []
    for leaf in leaves:
        name = TableName(schema=leaf.schema, name=leaf.name)
        indexes = _indexes(catalog, leaf.oid)
        leaf_identity = ReplicaIdentity(leaf.identity)
        if key.differs(chosen, identity, key.decide(name, leaf_identity, indexes, unsent), leaf_identity):
            odd.append(str(name))
            columns = () if identity is ReplicaIdentity.FULL else chosen.columns
            mends.append(key.align(name, indexes, columns))
    if not odd:
        return chosen
    mend = " ".join(mends)
    why = f"the replica identity of its partitions {', '.join(odd)} is not that of the table; {mend}"
    return Key(why_not=why, mend=mend, can_update=False)


def _missing_below(
    connection: psycopg.Connection[Any], doing: str, leaves: Mapping[int, Sequence[Row]]
) -> dict[tuple[int, str], str]:
    """Return what rows of before show in columns of partitioned tables, where all partitions agree.

    Returns:
        By the root's OID and the column's name: a partition may have it under another number.
    """
    pairs = [(leaf.oid, root) for root, found in leaves.items() for leaf in found]
    if not pairs:
        return {}
    rows = _rows(connection, doing, _MISSING_BELOW, *map(list, zip(*pairs, strict=True)))
    found = {(row.relation, row.name): _missing(row) for row in rows if row.values == 1}
    return {key: value for key, value in found.items() if value is not None}


def _missing(row: Row) -> str | None:
    """Return what rows of before show in a column; of what is long, what tells it from others."""
    return row.missing if row.digest is None else f"{LONG}{row.digest}"


def _lists(
    connection: psycopg.Connection[Any], doing: str, oids: Sequence[int], publications: Sequence[str]
) -> list[Row]:
    version = connection.info.server_version
    if not publications or not oids or version < _LISTS_SINCE:
        return []
    query = _LISTS.format(generated="p.pubgencols = 's'" if version >= _GENERATED_SINCE else "false")
    return _rows(connection, doing, query, list(oids), list(publications))


def _unsent(columns: Sequence[Row], published: Row | None) -> tuple[str, ...]:
    """Return the generated columns of a table that its publication does not send, nor would if it had the table."""
    has_stored = published is not None and published.has_generated
    return tuple(one.name for one in columns if one.is_generated and not (one.is_stored and has_stored))


def _sent(oid: int, catalog: _Catalog) -> tuple[int, ...] | None:
    """Return the columns that messages have; None: all that are not generated."""
    row = catalog.lists.get(oid)
    if row is None or (row.columns is None and not row.has_generated):
        return None
    if row.columns is not None:
        return tuple(sorted(row.columns))
    return tuple(one.attnum for one in catalog.columns.get(oid, ()) if one.is_stored or not one.is_generated)


def _versions(attributes: int, columns: Sequence[Row]) -> tuple[int, ...]:
    numbers: dict[int, int] = {}  # those of one transaction are one object
    found = {row.attnum: numbers.setdefault(row.version, row.version) for row in columns}
    return tuple(found.get(attnum, 0) for attnum in range(1, attributes + 1))


def _columns(oid: int, catalog: _Catalog, chosen: Key, *, are_generated: bool = False) -> tuple[Column, ...]:
    columns = tuple(
        Column(
            name=sys.intern(row.name), pg_type=catalog.types[row.type], typmod=row.typmod,
            is_key=row.name in chosen.columns, attnum=row.attnum, is_nullable=not row.is_not_null,
            is_grid=row.is_grid, has_default=row.has_default,
            missing=catalog.missing.get((oid, row.name), _missing(row)),
            facts=catalog.facts.get(row.type, ()),
        )
        for row in catalog.columns.get(oid, ()) if row.is_generated is are_generated
    )  # fmt: skip
    return _alike(columns)


@functools.lru_cache(maxsize=_MOST_ALIKE)
def _alike(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a table that were given first; of thousands of sources that are alike they are one."""
    return columns


def _indexes(catalog: _Catalog, oid: int) -> list[UniqueIndex]:
    return [
        UniqueIndex(
            name=row.name, columns=_once(tuple(row.columns)), is_primary=row.is_primary, is_identity=row.is_identity,
            is_immediate=row.is_immediate, is_valid=row.is_valid, is_partial=row.is_partial,
            is_not_null=row.is_not_null, has_generated=row.has_generated,
            uniqueness=Uniqueness(row.constraint_oid, row.index, row.file),
        )
        for row in catalog.indexes.get(oid, ())
    ]  # fmt: skip


def _kind(row: Row) -> TableKind:
    if row.relkind == "p":
        return TableKind.PARTITIONED
    if row.relkind != "r":
        return TableKind.OTHER
    return TableKind.LEAF if row.is_partition else TableKind.TABLE


def _why_unsupported(row: Row, leaves: Sequence[Row]) -> str:
    if row.relkind in _UNSUPPORTED:
        return _UNSUPPORTED[row.relkind]
    if row.persistence != "p":
        return "it is unlogged or temporary, so its changes are not in the write-ahead log"
    if row.schema in ("pg_catalog", "information_schema"):
        return "it is a system catalog"
    unlogged = [f"{leaf.schema}.{leaf.name}" for leaf in leaves if leaf.relkind == "r" and leaf.persistence != "p"]
    if unlogged:
        return f"its partitions {', '.join(unlogged)} are unlogged, so their changes are not in the write-ahead log"
    foreign = [f"{leaf.schema}.{leaf.name}" for leaf in leaves if leaf.relkind == "f"]
    if foreign:
        return f"its partitions {', '.join(foreign)} are foreign tables, which write no write-ahead log"
    return ""


def _leaf(row: Row) -> Leaf:
    return Leaf(
        oid=row.oid, table=TableName(schema=row.schema, name=row.name), page_bytes=row.page_bytes,
        row_estimate=_estimate((row,)),
        has_policies=row.has_policies, identity=ReplicaIdentity(row.identity), file=row.file,
        is_logged=row.persistence == "p",
    )  # fmt: skip


def _leaf_files(leaves: Sequence[Row]) -> int:
    return zlib.crc32(repr(sorted((leaf.oid, leaf.file) for leaf in leaves)).encode()) if leaves else 0


def _estimate(rows: Sequence[Row]) -> int | None:
    # reltuples is -1 until the first VACUUM or ANALYZE (manual, section 53.11 "pg_class").
    if any(row.tuples < 0 for row in rows):
        return None
    return int(sum(row.tuples for row in rows))


def _grouped(rows: Iterable[Any], field: str) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[getattr(row, field)].append(row)
    return groups


def _rows(connection: psycopg.Connection[Any], doing: str, query: str, *parameters: object) -> list[Row]:
    role = connection.info.user
    with (
        failure.translated(place(connection), doing, role=role),
        connection.cursor(row_factory=namedtuple_row) as cursor,
    ):
        rows = list(cursor.execute(query, parameters or None).fetchall())
    for row in rows:
        _refuse_long(row, place(connection), doing)
    return rows


def _refuse_long(row: Row, where: str, doing: str) -> None:
    """Refuse what no catalog of PostgreSQL has: it would be in the metadata of tables that others fill, too.

    Raises:
        SourceError: There is a text of more characters than there can be.
    """
    for field, value in zip(row._fields, row, strict=True):
        if isinstance(value, str) and len(value) > (_MOST_NAME if field in {"schema", "name"} else _MOST_TEXT):
            raise SourceError(
                f"{where}: cannot {doing}: its catalog has a {field} of {len(value):,} characters",
                hint=_OTHER_SERVER,
            )
