"""How a source's relation meets a lake table, and what is said when it does not. Pure; shared by all lakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kuvasz import lsn, typemap
from kuvasz.errors import DecodeError, KuvaszError, SchemaError, VersionLost, place_of, resync_of
from kuvasz.lake.format.schema import SID, Field, LakeSchema, is_same, reading_type, reads, source_type
from kuvasz.model import Column, LakeType, Relation, ReplicaIdentity, TableType
from kuvasz.modes import system_columns
from kuvasz.modes.shape import DEFAULT_COLUMN, NO_COLUMN, OWN_COLUMN, SID_COLUMN, Binding, Shape
from kuvasz.ports import Feed, Target

#: Nothing is known of a source's column numbers.
NO_FIELDS: Mapping[int, int] = MappingProxyType({})


def bind(  # noqa: PLR0913 (facts of both sides)
    target: Target,
    schema: LakeSchema,
    key: tuple[str, ...],
    seed: bytes,
    feed: Feed,
    relation: Relation,
    fields: Mapping[int, int] = NO_FIELDS,
    live: frozenset[int] = frozenset(),
    left: Mapping[int, Sequence[int]] = MappingProxyType({}),
    defaulted: frozenset[int] = frozenset(),
    older: frozenset[int] = frozenset(),
) -> Shape:
    """Return how a relation's columns meet a table's fields.

    Args:
        target: What the map says of the table.
        schema: The table's.
        key: The table's key columns, without sid.
        seed: The seed of the table's key hash.
        feed: The source table.
        relation: Its columns.
        fields: Number of a column -> id of the field it fills. A numbered column that is not in it came and went
            between two looks at the catalog: it is left out. Columns without a number are taken by name.
        live: Ids of the fields that the source fills now.
        left: Number of a column -> ids of fields that it filled before, the newest last: a row that is older than a
            change of its type goes to the one that can hold it.
        defaulted: Ids of the fields whose default the source's rows have that are from before their columns. Other
            rows have NULL: the default of a field is that of the source for which it was added.
        older: Numbers of the relation's columns that have another type by now.

    Raises:
        SchemaError: The table cannot hold them.
    """
    place = place_of(feed.source, relation.table)
    column_of: dict[str, int] = {}
    keyed = set()
    is_clone = target.type is TableType.CLONE
    for number, one in enumerate(relation.columns):
        is_numbered = bool(fields) and one.attnum != 0
        name: str | None = one.name
        if is_numbered:
            fitting = choices(one, schema, fields, left)
            found = held_by(one, fitting, key, is_older=one.attnum in older) or _first(one, fitting)
            if found is None and fitting and is_clone and fitting[0].field_id not in live:
                continue  # of a column that is gone, and that had another type before it went
            if found is None and fitting:
                raise _held_nowhere(target, one, fitting[0], place)
            name = None if found is None else found.name
        if name is None or (not is_numbered and not target.takes(one.name)):
            continue
        column_of[name] = number
        if one.is_key:
            keyed.add(name)
    _check_key(target, key, relation, keyed, set(column_of), place)
    bindings = []
    for field in schema.fields:
        if field.name == SID and target.has_sid:
            bindings.append(Binding(name=SID, column=SID_COLUMN, type=field.type))
        elif field.name in system_columns.names(target.type, is_soft=target.is_soft):
            bindings.append(Binding(name=field.name, column=OWN_COLUMN, type=field.type))
        elif field.name in column_of:
            column = column_of[field.name]
            source = relation.columns[column]
            kind = reading_type(source, field, place)
            bindings.append(Binding(name=field.name, column=column, type=kind, source=source.name))
        else:
            column = DEFAULT_COLUMN if field.field_id in defaulted else NO_COLUMN
            bindings.append(Binding(name=field.name, column=column, type=field.type))
    names = [binding.name for binding in bindings]
    lacking = set(column_of) - set(names)
    if lacking:
        message = f"{place}: columns {', '.join(sorted(lacking))} are not in the lake table {target.name}"
        raise SchemaError(message, hint="restart kuvasz to add them")
    return Shape(
        source=feed.source,
        table=relation.table,
        sid=feed.sid if target.has_sid else None,
        column_count=len(relation.columns),
        bindings=tuple(bindings),
        key=tuple(names.index(name) for name in key),
        seed=seed,
        schema=schema.arrow(),
        out_of_range=target.out_of_range,
        rejects=target.rejects,
        keeps_earlier=target.keeps_earlier,
        mode=target.type,
    )


def choices(
    column: Column, schema: LakeSchema, fields: Mapping[int, int], left: Mapping[int, Sequence[int]]
) -> list[Field]:
    """Return the fields for a numbered column's rows: that which it fills, and those that it left, the newest first.

    Args:
        column: A column of a message.
        schema: The table's.
        fields: As for `bind`.
        left: As for `bind`.
    """
    by_id = {field.field_id: field for field in schema.fields}
    now, free = by_id.get(fields.get(column.attnum, 0)), by_id.keys() - set(fields.values())
    earlier = [by_id[field_id] for field_id in left.get(column.attnum, ()) if field_id in free]
    return [] if now is None else [now, *reversed(earlier)]


def held_by(column: Column, fitting: Sequence[Field], key: tuple[str, ...], *, is_older: bool) -> Field | None:
    """Return the first field that can hold a column; rows of an earlier type have that of their own, if there is one.

    A text holds whatever was there before, but under the column's name the lake shows values of its type of now. Of
    the key there is one field.

    Args:
        column: A column of a message.
        fitting: As of `choices`.
        key: Names of the table's key fields.
        is_older: Whether the column has another type by now.
    """
    if is_older and fitting and fitting[0].name not in key:
        made = source_type(column)
        exact = next((field for field in fitting if is_same(made, field.type)), None)
        if exact is not None:
            return exact
        if fitting[0].type.kind is LakeType.STRING:
            return _first(column, fitting[1:])
    return _first(column, fitting)


def _first(column: Column, fitting: Sequence[Field]) -> Field | None:
    return next((field for field in fitting if reads(column, field)), None)


def _held_nowhere(target: Target, column: Column, field: Field, place: str) -> SchemaError:
    """Return the error of rows of a backlog that are of another type than their column is of now."""
    message = (
        f"{place}: rows of a backlog have {column.pg_type.name} for {field.name}, which is"
        f" {typemap.iceberg_name(field.type)} in the lake: the column was given another type since"
    )
    if target.type in {TableType.CLONE, TableType.HISTORY}:
        kept = "; versions from before stay" if target.type is TableType.HISTORY else ""
        return SchemaError(message, hint=f"{resync_of(target.name)} copies it again{kept}")
    return SchemaError(message, hint=f"drop the table {target.name} from the lake to copy it anew")


def _check_key(
    target: Target, key: tuple[str, ...], relation: Relation, keyed: set[str], names: set[str], place: str
) -> None:
    # The stream marks every column as key with REPLICA IDENTITY FULL, and none while there was no replica identity,
    # when only INSERTs were possible; the catalog's choice is checked before, when its rows are copied.
    is_of_stream, is_whole = relation.attributes == 0, relation.identity is ReplicaIdentity.FULL
    is_free = target.type not in {TableType.CLONE, TableType.HISTORY}  # its rows are found by no key
    is_undecided = (is_whole and (is_of_stream or is_free)) or (not relation.key and is_of_stream)
    chosen = set(key) if is_undecided and names >= set(key) else None
    if (keyed if chosen is None else chosen) != set(key):
        message = (
            f"{place}: rows are identified by ({', '.join(relation.key)}), but by ({', '.join(key)})"
            f" in the lake table {target.name}"
        )
        raise SchemaError(message, hint="give all sources of a target the same key, or choose another `target`")


class Feeds:
    """The source tables that feed each target."""

    def __init__(self) -> None:
        self._feeds: dict[
            tuple[str, str], tuple[Feed, ...]
        ] = {}  #: of a target and a source there is one nearly always

    def add(self, feed: Feed) -> None:
        """Make a feed known, in the place of an earlier one of the same table: a source may begin again otherwise."""
        known = self._feeds.get((feed.target, feed.source), ())
        if any(one.table == feed.table for one in known):
            known = tuple(feed if one.table == feed.table else one for one in known)
        else:
            known = (*known, feed)
        self._feeds[feed.target, feed.source] = known

    def find(self, target: str, source: str, relation: Relation) -> Feed:
        """Return the feed a relation belongs to."""
        feeds = self._feeds[target, source]
        return next((one for one in feeds if one.table == relation.table), feeds[0])


def no_earlier_version(source: str, table: str, rows: int) -> VersionLost:
    """Return the error of rows whose unchanged values are nowhere."""
    message = (
        f"{place_of(source, table)}: {rows} updated rows leave out a large value that did not change,"
        " and the lake has no earlier version of them"
    )
    hint = (
        f"copy the table again: {resync_of(table)}; if rows enter a filter, or were left out"
        " (`initial: skip`), with ALTER TABLE … REPLICA IDENTITY FULL before"
    )
    return VersionLost(message, hint=hint, source=source)


def no_earlier_value(source: str, table: str, column: str) -> VersionLost:
    """Return the error of rows whose earlier versions are from before their column had its field."""
    message = (
        f"{place_of(source, table, column)}: an updated row leaves out a large value that did not change, and its"
        " earlier version in the lake has none: the column was given another type, or was added or left out, since"
    )
    hint = (
        f"copy the table again: {resync_of(table)}; before such a change, ALTER TABLE … REPLICA IDENTITY FULL has"
        " updates bring all values"
    )
    return VersionLost(message, hint=hint, source=source)


def placed(error: KuvaszError, commit_lsn: int) -> KuvaszError:
    """Add the LSN of its transaction to a value's error."""
    if isinstance(error, DecodeError) and commit_lsn:
        return type(error)(f"{error.message} (transaction {lsn.render(commit_lsn)})", hint=error.hint)
    return error
