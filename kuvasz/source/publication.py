"""A source's publication: its name, what it has, and the fewest statements that make it what the map wants.

`plan` decides, `reconcile` carries it out. A publication that a DBA made beforehand and that has the right tables
needs no statement, and so no privilege. See the manual, sections "CREATE PUBLICATION" and "ALTER PUBLICATION".
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from kuvasz.config.names import object_name
from kuvasz.errors import SourceLocked, SourceRefused
from kuvasz.model import ReplicaIdentity, TableName
from kuvasz.source import conninfo, failure, sql
from kuvasz.source.catalog import membership
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

#: What a publication sends unless told otherwise.
ALL_OPERATIONS = ("insert", "update", "delete", "truncate")

_ROW_FILTERS_SINCE = 150000

# One statement: a source of a fleet is asked for its publications several times at each start. What is the
# publication's own is worked out once, and not for each of ten thousand tables.
_LOAD = """
WITH p AS MATERIALIZED (
    SELECT oid, pubname, puballtables, pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate,
        pg_has_role(pubowner, 'USAGE') AS is_owned, {schemas} AS schemas
    FROM pg_publication WHERE pubname = ANY(%s::name[]))
SELECT p.pubname::text, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
    p.is_owned, p.schemas, r.prrelid::bigint, n.nspname::text, c.relname::text, {row_filter}, {columns}
FROM p LEFT JOIN (
    pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace)
    ON r.prpubid = p.oid
ORDER BY n.nspname, c.relname
"""

_MEMBER_COLUMNS = """
CASE WHEN r.prattrs IS NOT NULL THEN ARRAY(
    SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = r.prrelid AND a.attnum = ANY(r.prattrs::int2[])) END
"""

#: Number of the first column of a member, behind the publication's name.
_OF_MEMBERS = 8

_OWNED = "SELECT oid::bigint FROM pg_class WHERE oid = ANY(%s::oid[]) AND pg_has_role(relowner, 'USAGE')"

_SCHEMAS = """
ARRAY(SELECT n.nspname::text FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid
    WHERE s.pnpubid = pg_publication.oid)
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A table that a publication names."""

    oid: int
    table: TableName
    columns: frozenset[str] | None = None  #: of a column list; None: all
    row_filter: str | None = None  #: the mark of kuvasz's own; empty: it is somebody else's, None: there is none


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A publication as the catalog has it."""

    name: str
    members: tuple[Member, ...]
    schemas: frozenset[str] = frozenset()  #: published whole
    is_for_all: bool = False
    is_via_root: bool = True
    operations: tuple[str, ...] = ALL_OPERATIONS
    is_owned: bool = True  #: by the session's role, or a role it is a member of
    #: the members by OID: whoever owns a source may name any number of tables, and each of ours is looked for
    _by_oid: Mapping[int, Member] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_oid", {member.oid: member for member in self.members})

    def member(self, oid: int) -> Member | None:
        """Return the member of this OID, if the publication names it."""
        return self._by_oid.get(oid)

    @property
    def may_have_lists(self) -> bool:
        """Whether its tables may be given lists of columns."""
        return self.is_owned and not self.is_for_all and not self.schemas

    def covers(self, table: SourceTable) -> bool:
        """Return whether the table's changes are published, by whatever clause."""
        return self.is_for_all or table.table.schema in self.schemas or self.member(table.relation.oid) is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PublicationChanges:
    """What makes a publication fit, or what was done to make it so."""

    is_new: bool = False
    added: tuple[TableName, ...] = ()
    dropped: tuple[TableName, ...] = ()
    statements: tuple[str, ...] = ()  #: without these, something wanted is missing
    settings: tuple[str, ...] = ()  #: those of `statements` that concern no table, and
    apart: tuple[str, ...] = ()  #: what adds the tables one by one, in order
    locked: tuple[TableName, ...] = ()  #: could not be added, for somebody has locked them
    tidying: tuple[str, ...] = ()  #: take out what nobody wants: worth having, not needed
    #: tables that get another list of columns or row filter, or none, each with the statements for it
    relisted: tuple[tuple[TableName, tuple[str, ...]], ...] = ()
    left: tuple[TableName, ...] = ()  #: members nobody wants that could not be taken out

    def __bool__(self) -> bool:
        return bool(self.statements or self.tidying or self.relisted)

    @property
    def relisting(self) -> tuple[str, ...]:
        """All statements for other lists of columns and row filters."""
        return tuple(statement for _, statements in self.relisted for statement in statements)


#: What to do where a publication is another's to alter: the first group's of a staged log.
HEARD_HINT = (
    "the processes without a group make it fit as soon as their map has that, too: what a publication leaves out by"
    " `row_filter` or `column_list` is the same in the maps of all groups"
)


def unfit(changes: PublicationChanges, name: str) -> dict[TableName | None, str]:
    """Return what is not as it is wanted, for who may not alter it; by table, and None for the publication itself.

    Args:
        changes: What would make it fit.
        name: The name of the publication.
    """
    found: dict[TableName | None, str] = {}
    if changes.settings:
        found[None] = f"publication {name} {'is not there' if changes.is_new else 'does not publish what it has to'}"
    found |= {table: f"table {table} is not in publication {name}" for table in changes.added}
    other = "with another row filter or list of columns than this map wants"
    return found | {table: f"publication {name} has table {table} {other}" for table, _ in changes.relisted}


def create_statement(name: str, tables: Iterable[SourceTable], operations: Sequence[str] = ALL_OPERATIONS) -> str:
    """Return the statement that makes a publication."""
    members = ", ".join(_clause(table) for table in tables)
    clause = f" FOR TABLE {members}" if members else ""
    options = f"publish = '{', '.join(operations)}', publish_via_partition_root = true"
    return f"CREATE PUBLICATION {sql.identifier(name)}{clause} WITH ({options});"


def refusals(
    connection: psycopg.Connection[Any],
    current: Publication | None,
    name: str,
    tables: Iterable[SourceTable],
    operations: Sequence[str] = ALL_OPERATIONS,
    *,
    wanted: Collection[int] = (),
) -> dict[TableName, SourceRefused]:
    """Return which tables the publication cannot have as they are wanted, and why; the others can be published.

    Args:
        connection: To the source.
        current: As the catalog has it; None if there is none.
        name: Its name.
        tables: The tables that it is to publish.
        operations: The operations that it publishes of them.
        wanted: OIDs of all tables that the source's stream is to have, in whatever publication.

    Raises:
        SourceError: A query failed.
    """
    refused: dict[TableName, SourceRefused] = {}
    missing = []
    for table in tables:
        try:
            _check(table, operations)
            if (inside := within_wanted(table, wanted)) is not None:
                raise inside
            if current is not None:
                _check_members(current, [table])
        except SourceRefused as error:
            refused[table.table] = error
        else:
            if current is None or not current.covers(table):
                missing.append(table)
    with failure.translated(place(connection), f"read who may alter publication {name}"):
        oids = [table.relation.oid for table in missing]
        rows = connection.execute(_OWNED, (oids,)).fetchall() if oids else []
    owned = {oid for (oid,) in rows}
    if current is None and not owned:
        return refused  # there is nothing to add a table to: whoever makes the publication is told how
    for table in missing:
        if current is not None and not current.is_owned:
            refused[table.table] = _not_owned(
                name, table, f"role {connection.info.user} does not own the publication"
            )
        elif table.relation.oid not in owned:
            refused[table.table] = _not_owned(name, table, f"role {connection.info.user} does not own the table")
    return refused


def _not_owned(name: str, table: SourceTable, why: str) -> SourceRefused:
    statement = f"ALTER PUBLICATION {sql.identifier(name)} ADD TABLE {_clause(table)};"
    return SourceRefused(f"table {table.table} is not in publication {name}, and {why}", hint=_by_owner([statement]))


def plan(
    current: Publication | None,
    name: str,
    tables: Collection[SourceTable],
    operations: Sequence[str] = ALL_OPERATIONS,
    *,
    left: Iterable[SourceTable] = (),
) -> PublicationChanges:
    """Return what has to be done; nothing if the publication fits.

    Args:
        current: As the catalog has it; None if there is none.
        name: Its name.
        tables: The tables that it is to publish.
        operations: The operations that it publishes of them.
        left: Other tables, which are neither added nor taken out.

    Raises:
        SourceRefused: A table has no identity that UPDATE and DELETE could go by, cannot be published at all, or
            is published with a row filter or without a column.
    """
    for table in tables:
        _check(table, operations)
    if current is None:
        return PublicationChanges(
            is_new=True, added=tuple(table.table for table in tables),
            statements=(create_statement(name, tables, operations),),
            settings=(create_statement(name, (), operations),), apart=_apart(name, tables),
        )  # fmt: skip
    _check_members(current, tables)
    wanted = {table.relation.oid for table in (*tables, *(table for table in left if not _breaks(current, table)))}
    missing = [
        table if current.may_have_lists else dataclasses.replace(table, column_list=None, row_filter="")
        for table in tables
        if not current.covers(table)
    ]
    unwanted = [member for member in current.members if member.oid not in wanted]
    settings = _settings(current, operations)
    statements = [*settings]
    alter = f"ALTER PUBLICATION {sql.identifier(name)}"
    if missing:
        statements.append(f"{alter} ADD TABLE {', '.join(_clause(table) for table in missing)};")
    tidying = [f"{alter} DROP TABLE ONLY {sql.qualified(member.table)};" for member in unwanted]
    other = [table for table in tables if _has_other_clause(current, table)]
    return PublicationChanges(
        added=tuple(table.table for table in missing), dropped=tuple(member.table for member in unwanted),
        statements=tuple(statements), settings=tuple(settings), apart=_apart(name, missing), tidying=tuple(tidying),
        relisted=tuple((table.table, tuple(_relisting(name, table))) for table in other),
    )  # fmt: skip


def exists(connection: psycopg.Connection[Any], name: str) -> bool:
    """Return whether there is a publication of that name, whatever is in it.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), f"look for publication {name}"):
        return connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is not None


def load(connection: psycopg.Connection[Any], name: str) -> Publication | None:
    """Return the publication, or None if there is none of that name; see `load_all`."""
    return load_all(connection, [name]).get(name)


def load_all(connection: psycopg.Connection[Any], names: Sequence[str]) -> Mapping[str, Publication]:
    """Return those publications that are there, by their names.

    Raises:
        SourceError: A query failed.
    """
    has_lists = connection.info.server_version >= _ROW_FILTERS_SINCE
    query = _LOAD.format(
        schemas=_SCHEMAS if has_lists else "'{}'::text[]",
        row_filter=membership.FILTER_MARK if has_lists else "NULL",
        columns=_MEMBER_COLUMNS if has_lists else "NULL::text[]",
    )
    with failure.translated(place(connection), f"read publication {' and '.join(names)}"):
        rows = connection.execute(query, (list(names),)).fetchall()
    found = {name: [row[1:] for row in rows if row[0] == name] for name in names}
    return {name: _publication(name, mine) for name, mine in found.items() if mine}


def _publication(name: str, rows: Sequence[tuple[Any, ...]]) -> Publication:
    is_for_all, is_via_root, *operations, is_owned, schemas = rows[0][:_OF_MEMBERS]
    members = [row[_OF_MEMBERS:] for row in rows]
    return Publication(
        name=name, is_for_all=is_for_all, is_via_root=is_via_root, is_owned=is_owned,
        operations=tuple(o for o, on in zip(ALL_OPERATIONS, operations, strict=True) if on),
        schemas=frozenset(schemas), members=tuple(_member(member) for member in members if member[0] is not None),
    )  # fmt: skip


def reconcile(
    connection: psycopg.Connection[Any],
    name: str,
    tables: Collection[SourceTable],
    operations: Sequence[str] = ALL_OPERATIONS,
) -> PublicationChanges:
    """Make the publication publish exactly these tables; touch nothing that is right already.

    What is missing is added in one transaction, before what nobody wants is taken out. Lack of the privilege to
    take a table out, or a lock of somebody else on it, is no error: it is named in `PublicationChanges.left`.

    Args:
        connection: In autocommit.
        name: The publication's name, `object_name`.
        tables: As the catalog has them now.
        operations: What is published; the default needs a key or REPLICA IDENTITY FULL of every table.

    Returns:
        What was done.

    Raises:
        SourceRefused: A privilege or a table's identity is missing; the hint has the SQL.
        SourceLocked: Somebody has locked a table; the others were added.
        SourceError: The server failed.
    """
    done = carry_out(connection, name, plan(load(connection, name), name, tables, operations))
    for table in done.locked:
        raise locked_out(name, table)
    return done


def carry_out(connection: psycopg.Connection[Any], name: str, changes: PublicationChanges) -> PublicationChanges:
    """Do what was planned, see `reconcile`; what somebody has locked is named in `PublicationChanges.locked`.

    Each table that is added is locked for that, in SHARE UPDATE EXCLUSIVE mode. If one cannot be, all are added one
    by one.
    """
    doing = f"{'create' if changes.is_new else 'alter'} publication {name}"
    try:
        _execute(connection, doing, changes.statements)
    except SourceLocked:
        if not changes.apart:
            raise
        changes = _carry_out_apart(connection, doing, changes)
    return _tidy(connection, changes, doing)


def _carry_out_apart(
    connection: psycopg.Connection[Any], doing: str, changes: PublicationChanges
) -> PublicationChanges:
    _execute(connection, doing, changes.settings)
    done, locked = [], []
    for table, statement in zip(changes.added, changes.apart, strict=True):
        try:
            _execute(connection, doing, [statement])
        except SourceLocked:
            locked.append(table)
        else:
            done.append(statement)
    added = tuple(table for table in changes.added if table not in locked)
    return dataclasses.replace(
        changes, statements=(*changes.settings, *done), added=added, locked=tuple(locked)
    )  # fmt: skip


def _execute(connection: psycopg.Connection[Any], doing: str, statements: Sequence[str]) -> None:
    if not statements:  # as at each start of each source of a fleet
        return
    mend, role = _by_owner(statements), connection.info.user
    with failure.translated(place(connection), doing, mend=mend, role=role), connection.transaction():
        connection.execute(conninfo.LOCK_WAIT)
        for statement in statements:
            connection.execute(statement)


def drop(connection: psycopg.Connection[Any], name: str) -> bool:
    """Drop the publication; return whether there was one.

    Raises:
        SourceRefused: The role does not own it.
        SourceError: The server failed.
    """
    statement = f"DROP PUBLICATION {sql.identifier(name)};"
    doing = f"drop publication {name}"
    with failure.translated(place(connection), doing, mend=_by_owner([statement]), role=connection.info.user):
        try:
            connection.execute(statement)
        except errors.UndefinedObject:
            return False
    return True


def _tidy(connection: psycopg.Connection[Any], changes: PublicationChanges, doing: str) -> PublicationChanges:
    done, dropped, left = [], [], []
    with failure.translated(place(connection), doing):
        for statement, table in zip(changes.tidying, changes.dropped, strict=True):
            try:
                with connection.transaction():
                    connection.execute(conninfo.LOCK_WAIT)
                    connection.execute(statement)
            except (errors.InsufficientPrivilege, errors.LockNotAvailable):
                left.append(table)
            else:
                done.append(statement)
                dropped.append(table)
    return dataclasses.replace(changes, tidying=tuple(done), dropped=tuple(dropped), left=tuple(left))


def _check(table: SourceTable, operations: Sequence[str]) -> None:
    if table.why_unsupported:
        raise SourceRefused(
            f"table {table.table} cannot be published: {table.why_unsupported}", hint="take it out of the map"
        )
    if not table.can_update and not {"update", "delete"}.isdisjoint(operations):
        raise SourceRefused(
            f"table {table.table} cannot be published for UPDATE and DELETE, which would then fail at the source:"
            f" {table.why_no_key}",
            hint=table.mend or table.why_no_key,
        )


def _check_members(current: Publication, tables: Iterable[SourceTable]) -> None:
    # A row filter or column list hides on the stream what the copy shows. Whoever wrote it meant it, so it is not
    # taken away here.
    for table in tables:
        _check_root(current, table)
        member = current.member(table.relation.oid)
        if member is None:
            continue
        columns = {column.name for column in table.relation.columns}
        may_alter = current.may_have_lists and table.is_owned
        is_mendable = table.column_list is not None and may_alter
        hidden = sorted(columns - member.columns) if member.columns is not None and not is_mendable else []
        is_broken = table.column_list is not None and not is_mendable and _breaks(current, table)
        is_stuck = bool(member.row_filter) and _has_other_filter(member, table) and not may_alter
        is_filtered = member.row_filter == "" or is_stuck
        if not hidden and not is_filtered and not is_broken:
            continue
        what = f"without its columns {', '.join(hidden)}" if hidden else "with a row filter"
        what = "with a list of columns by which its UPDATEs fail" if is_broken else what
        raise partial(current.name, table, what)


def partial(name: str, table: SourceTable, what: str) -> SourceRefused:
    """Return the error of a table whose messages lack something of it.

    Args:
        name: The name of the publication.
        table: The table.
        what: How it is published.
    """
    alter = f"ALTER PUBLICATION {sql.identifier(name)}"
    return SourceRefused(
        f"publication {name} has table {table.table} {what}, so copy and stream would differ",
        hint=f"{alter} DROP TABLE ONLY {sql.qualified(table.table)}; {alter} ADD TABLE {_clause(table)};",
    )


def locked_out(name: str, table: TableName) -> SourceLocked:
    """Return the error of a table that is not published yet because somebody has locked it.

    Args:
        name: The name of the publication.
        table: The table.
    """
    return SourceLocked(
        f"table {table} is locked by another session, so publication {name} cannot have it yet",
        hint="see pg_locks for who that is; it is tried again by itself",
    )


def within_wanted(table: SourceTable, wanted: Collection[int]) -> SourceRefused | None:
    """Return the error of a partition that is wanted beside what it is a partition of; None if it is not.

    Args:
        table: The partition.
        wanted: OIDs of all tables that are wanted.
    """
    above = next((one for one in reversed(table.ancestors) if one.oid in wanted), None)
    if above is None:
        return None
    return SourceRefused(
        f"table {table.table} is a partition of {above.table}, which the map takes in as well: its changes come as"
        " changes of that",
        hint=f"take one of the two out of the map, or detach {table.table}",
    )


def within_published(name: str, table: SourceTable) -> SourceRefused:
    """Return the error of a partition whose changes come as those of another table.

    Args:
        name: The name of the publication.
        table: The partition.
    """
    roots = " or ".join(str(ancestor.table) for ancestor in reversed(table.ancestors))
    return SourceRefused(
        f"publication {name} publishes {roots} as well, so changes of its partition {table.table} come as"
        " changes of that",
        hint=f"name {roots} in the map, or drop the publication: kuvasz makes one of the tables that it needs",
    )


def _check_root(current: Publication, table: SourceTable) -> None:
    # Who names an ancestor beside it in the publication is another matter: a member nobody wants is taken out.
    if any(current.is_for_all or one.table.schema in current.schemas for one in table.ancestors):
        raise within_published(current.name, table)


def _settings(current: Publication, operations: Sequence[str]) -> list[str]:
    options = []
    if set(current.operations) != set(operations):
        options.append(f"publish = '{', '.join(operations)}'")
    if not current.is_via_root:
        options.append("publish_via_partition_root = true")
    if not options:
        return []
    return [f"ALTER PUBLICATION {sql.identifier(current.name)} SET ({', '.join(options)});"]


def _member(row: tuple[Any, ...]) -> Member:
    oid, schema, name, row_filter, columns = row
    return Member(
        oid=oid, table=TableName(schema=schema, name=name), row_filter=row_filter,
        columns=None if columns is None else frozenset(columns),
    )  # fmt: skip


def _clause(table: SourceTable) -> str:
    # ONLY keeps tables that inherit from this one out; a partitioned root stands for its partitions either way.
    only = "" if table.kind is TableKind.PARTITIONED else "ONLY "
    columns = f" ({sql.identifiers(table.column_list)})" if table.column_list else ""
    rows = f" WHERE ({table.row_filter})" if table.row_filter else ""
    return f"{only}{sql.qualified(table.table)}{columns}{rows}"


def _has_other_clause(current: Publication, table: SourceTable) -> bool:
    """Whether a published table is to have another list of columns, or row filter, than it has, and can have it."""
    member = current.member(table.relation.oid)
    if member is None or not (current.may_have_lists and table.is_owned):
        return False
    is_other_list = table.column_list is not None and member.columns != (frozenset(table.column_list) or None)
    return is_other_list or _has_other_filter(member, table)


def _has_other_filter(member: Member, table: SourceTable) -> bool:
    """Whether a table is to have another row filter of kuvasz's than it has."""
    return (member.row_filter or "") != membership.mark_of(table.row_filter)


def _breaks(current: Publication, table: SourceTable) -> bool:
    """Whether UPDATE and DELETE fail at the source, by what a table's clause makes of what identifies its rows."""
    member = current.member(table.relation.oid)
    if member is None:
        return False
    if not membership.columns_of(member.row_filter or "").issubset(table.identity):
        return True
    is_full = table.relation.identity is ReplicaIdentity.FULL
    return member.columns is not None and (is_full or not member.columns.issuperset(table.relation.key))


def _relisting(name: str, table: SourceTable) -> Iterator[str]:
    alter = f"ALTER PUBLICATION {sql.identifier(name)}"
    yield f"{alter} DROP TABLE ONLY {sql.qualified(table.table)};"
    yield f"{alter} ADD TABLE {_clause(table)};"


#: The first minor versions that tell transactions under way of what another one does to a publication.
_TOLD_SINCE = {15: 150013, 16: 160009, 17: 170005}


def lock_mode(version: int) -> str:
    """Return the weakest lock under which a clause becomes another one for all rows from there on."""
    return "SHARE UPDATE EXCLUSIVE" if version >= _TOLD_SINCE.get(version // 10000, 0) else "SHARE ROW EXCLUSIVE"


@contextlib.contextmanager
def relisting(
    connection: psycopg.Connection[Any], name: str, table: TableName, statements: Sequence[str]
) -> Iterator[Callable[[], None]]:
    """Give a published table another list of columns or row filter; yield, in a transaction, what alters the table.

    Nobody takes the table out of a publication or puts it into one meanwhile: each such statement takes the lock that
    is held. Rows may be written all the time, but where the server would go on with the clause of before: in
    transactions that come after one which has written rows and goes on now.

    Args:
        connection: In autocommit.
        name: The publication's name.
        table: The table.
        statements: What `PublicationChanges.relisted` has for it.

    Raises:
        SourceLocked: Somebody has locked the table.
        SourceRefused: A privilege is missing.
        SourceError: The server failed.
    """
    mend, role = _by_owner(statements), connection.info.user
    doing = f"alter publication {name}"
    with failure.translated(place(connection), doing, mend=mend, role=role), connection.transaction():
        connection.execute(conninfo.LOCK_WAIT)
        mode = lock_mode(connection.info.server_version)
        connection.execute(f"LOCK TABLE ONLY {sql.qualified(table)} IN {mode} MODE")

        def alter() -> None:
            for statement in statements:
                connection.execute(statement)

        yield alter


def _apart(name: str, tables: Iterable[SourceTable]) -> tuple[str, ...]:
    alter = f"ALTER PUBLICATION {sql.identifier(name)}"
    return tuple(f"{alter} ADD TABLE {_clause(table)};" for table in tables)


def _by_owner(statements: Sequence[str]) -> str:
    return f"let the tables' owner, or a superuser, run: {' '.join(statements)}"


__all__ = [
    "ALL_OPERATIONS",
    "HEARD_HINT",
    "Member",
    "Publication",
    "PublicationChanges",
    "carry_out",
    "create_statement",
    "drop",
    "exists",
    "load",
    "load_all",
    "lock_mode",
    "locked_out",
    "object_name",
    "partial",
    "plan",
    "reconcile",
    "refusals",
    "relisting",
    "unfit",
    "within_published",
    "within_wanted",
]
