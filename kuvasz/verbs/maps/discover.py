"""``kuvasz discover``: what databases have, what each table would be in a map, and what a person has to decide."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz import typemap
from kuvasz.config import names, template
from kuvasz.config import sources as config_sources
from kuvasz.config.model import TableConfig
from kuvasz.errors import ConfigError, KuvaszError, place_of
from kuvasz.lake.format.schema import source_type
from kuvasz.model import LakeType, ReplicaIdentity, TableName, TableType
from kuvasz.shown import figures
from kuvasz.source import conninfo, failure
from kuvasz.source.catalog import inventory
from kuvasz.source.catalog.table import TableKind
from kuvasz.source.check.table_check import is_kept_as_text
from kuvasz.sync.rules import keyless
from kuvasz.verbs import text, typetable
from kuvasz.verbs.check import THREADS

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source
    from kuvasz.model import Column
    from kuvasz.source.catalog.inventory import Inventory
    from kuvasz.source.catalog.table import SourceTable

_WHOLE_ROW = "a row is matched as a whole"

#: Of a map that says nothing of a table.
_DEFAULTS = TableConfig()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing about a table that a person should know before it is replicated."""

    about: str  #: key, types, generated_columns, select or row_security, as `kuvasz check` calls them
    told: str
    columns: tuple[str, ...] = ()  #: that it is about; empty: the table
    mend: str = ""  #: the SQL that changes it, or what to write; empty if nothing has to be

    def sentence(self) -> str:
        """Return all of it."""
        return "; ".join(filter(None, (": ".join(filter(None, (", ".join(self.columns), self.told))), self.mend)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableListing:
    """One table of a database, or what looks like one."""

    table: str  #: as a map names it
    schema: str
    name: str
    kind: str  #: table, partitioned or other
    partitions: int  #: below it, with rows
    rows: int | None  #: as the source estimates them; None: never analysed
    bytes: int | None  #: at the source, without indexes; None: somebody has locked it
    key: tuple[str, ...]
    key_from: str  #: "primary key", "replica identity index", "a row is matched as a whole"; empty without any
    type: TableType | None  #: what a map should have of it; None: nothing
    why: str  #: it is left out, or no clone; empty for a clone
    decisions: tuple[Decision, ...]
    is_mapped: bool | None  #: the map has it; None: there is no map


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """What one database has."""

    source: str  #: its name in the map; empty if it has none
    location: str
    database: str
    tables: tuple[TableListing, ...] = ()
    error: str | None = None
    hint: str | None = None
    error_code: int = 0  #: exit code of the error


def filled(url: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Return a url of the command line with its references filled in, as in a map.

    Args:
        url: Such as ``postgresql://kuvasz:${EU_PW}@eu1/shop``.
        environ: The environment; the process's own by default.
        folder: Where relative paths of ``${file:…}`` begin; the working folder by default.

    Raises:
        ConfigError: A variable is not set, a file cannot be read, or the text is malformed.
    """
    environ = os.environ if environ is None else environ
    try:
        url_made = template.fill_url(url, environ, place="--url", folder=folder or Path()).value
    except ValueError as error:
        hint = "write it as a map has it, in single quotes: 'postgresql://kuvasz:${EU_PW}@eu1/shop'"
        raise ConfigError(f"--url: {error}", hint=hint) from None
    return url_made if isinstance(url_made, str) else url_made.get()


def of_url(url: str, patterns: Sequence[str] = (), config: Config | None = None) -> list[SourceListing]:
    """Return what the database of a url has.

    Args:
        url: The url of any database.
        patterns: Only tables that one of them means, see `chosen`.
        config: The configuration of a map, to say what it has already.

    Raises:
        ConfigError: The url cannot be read, or a pattern is none, or means nothing.
        SourceError: The server does not answer.
    """
    found = inventory.take(url)
    sources = () if config is None else config_sources.resolve(config)
    here = [source for source in sources if _leads_to(source, url)]
    is_mapped = None if config is None else lambda table: any(source.find(table) for source in here)
    tables = chosen(found.tables, patterns)
    return [_listing(here[0].name if here else "", found, tables, is_mapped)]


def of_map(config: Config, patterns: Sequence[str] = ()) -> list[SourceListing]:
    """Return what the sources of a map have, all side by side, in the map's order.

    Args:
        config: The configuration of the map.
        patterns: As for `of_url`; one may mean nothing at some sources.

    Raises:
        ConfigError: A pattern is none.
    """
    for pattern in patterns:
        parsed(pattern)
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="discover") as pool:
        return list(pool.map(lambda source: _of_source(source, patterns), config_sources.resolve(config)))


def exit_code(found: Sequence[SourceListing]) -> int:
    """Return the code of the worst error of a source, else 0."""
    return max((one.error_code for one in found), default=0)


def chosen(
    tables: Iterable[SourceTable], patterns: Sequence[str], excepted: Sequence[str] = (), *, is_strict: bool = True
) -> list[SourceTable]:
    """Return the tables that a pattern means, and none of the excepted ones.

    Args:
        tables: All that are there.
        patterns: Names as a map has them, with ``*`` for any text: ``shop.*``, ``orders_*`` of public; none: all.
        excepted: The same, of what is left out.
        is_strict: Refuse a pattern that means nothing.

    Raises:
        ConfigError: A pattern is none, or means nothing.
    """
    there = list(tables)
    wanted, unwanted = [parsed(one) for one in patterns], [parsed(one) for one in excepted]
    for pattern, given in zip([*wanted, *unwanted], [*patterns, *excepted], strict=True):
        if is_strict and not any(names.matches(pattern, one.table) for one in there):
            raise ConfigError(f"no table is meant by {given!r}", hint=_HINT)
    return [
        one for one in there
        if (not patterns or _is_any(wanted, one.table)) and not _is_any(unwanted, one.table)
    ]  # fmt: skip


_HINT = (
    "`kuvasz discover` lists the tables; names are as PostgreSQL has them, `*` stands for any text, public for no"
    " schema: 'shop.*', 'orders_*', '*.*'"
)


def parsed(pattern: str) -> TableName:
    """Return a pattern for `names.matches`.

    Raises:
        ConfigError: The text is no pattern.
    """
    try:
        return names.parse_table(pattern)
    except ValueError as error:
        raise ConfigError(f"{pattern!r} {error}", hint=_HINT) from None


def _is_any(patterns: Iterable[TableName], table: TableName) -> bool:
    return any(names.matches(pattern, table) for pattern in patterns)


def _leads_to(source: Source, url: str) -> bool:
    mapped = source.url.get()
    return (conninfo.servers(mapped), conninfo.route(mapped)[1]) == (conninfo.servers(url), conninfo.route(url)[1])


def _of_source(source: Source, patterns: Sequence[str]) -> SourceListing:
    listing = SourceListing(source=source.name, location="", database=source.database)
    try:
        url = source.url.get()
        listing = dataclasses.replace(listing, location=conninfo.location(url))
        with failure.contained(place_of(source.name)):
            found = inventory.take(url)
            tables = chosen(found.tables, patterns, is_strict=False)
            return _listing(source.name, found, tables, lambda table: source.find(table) is not None)
    except KuvaszError as error:
        return dataclasses.replace(listing, error=error.message, hint=error.hint, error_code=error.exit_code)


def _listing(
    source: str, found: Inventory, tables: Iterable[SourceTable], is_mapped: Callable[[TableName], bool] | None
) -> SourceListing:
    listings = tuple(
        listed(
            table, found.extensions.get(table.table, ""), None if is_mapped is None else is_mapped(table.table)
        )
        for table in tables
    )  # fmt: skip
    return SourceListing(source=source, location=found.location, database=found.database, tables=listings)


def listed(table: SourceTable, extension: str = "", is_mapped: bool | None = None) -> TableListing:  # noqa: FBT001
    """Return what is to be said of a table.

    Args:
        table: As the catalog describes it.
        extension: The extension that it is a part of; empty for none.
        is_mapped: Whether a map has it; None if there is none.
    """
    kind, why = _type(table, extension)
    return TableListing(
        table=names.render_table(table.table), schema=table.table.schema, name=table.table.name,
        kind=table.kind.value, partitions=len(table.leaves), rows=table.row_estimate, bytes=table.bytes,
        key=table.relation.key, key_from=_key_from(table), type=kind, why=why,
        decisions=tuple(_decisions(table, kind)) if not table.why_unsupported else (), is_mapped=is_mapped,
    )  # fmt: skip


def _type(table: SourceTable, extension: str) -> tuple[TableType | None, str]:
    """Return what a map should have of a table, and why it is not what one expects."""
    if table.why_unsupported:
        return None, table.why_unsupported
    if extension:
        return None, f"it is a part of the extension {extension}"
    if not (*table.relation.columns, *table.generated):
        return None, "it has no columns"
    if not table.relation.columns:
        return None, "all of its columns are generated"
    if table.relation.key or not keyless.why_not(table, _DEFAULTS):
        return TableType.CLONE, ""
    return TableType.APPEND, f"{table.why_no_key.partition('; ')[0]}: only its INSERTs are replicated"


def _key_from(table: SourceTable) -> str:
    if not table.relation.key:
        return _WHOLE_ROW if table.is_whole_row and not table.why_unsupported else ""
    return "replica identity index" if table.relation.identity is ReplicaIdentity.INDEX else "primary key"


def _decisions(table: SourceTable, kind: TableType | None) -> Iterable[Decision]:
    reason, _, mend = table.why_no_key.partition("; ")
    if kind is TableType.APPEND:
        yield Decision(about="key", told=f"{reason}: only its INSERTs are replicated", mend=mend)
    elif table.is_whole_row:
        yield Decision(
            about="key", told=reason, mend=" or ".join(filter(None, ("`key: [columns]` in the map", mend)))
        )
    yield from _types(table.relation.columns)
    if table.generated:
        told = "generated, left out of copy and stream: compute with `set` if wanted"
        yield Decision(about="generated_columns", told=told, columns=table.generated)
    if not table.can_select:
        which = ", ".join(map(names.render_table, table.unreadable))
        yield Decision(about="select", told=f"the role may not read {which}", mend="`kuvasz check` has the GRANT")
    if table.has_policies:
        told = "row security hides rows from the role"
        yield Decision(about="row_security", told=told, mend="`kuvasz check` has the ALTER ROLE")


def _types(columns: Iterable[Column]) -> Iterable[Decision]:
    """Return what the type map says of columns whose values are something else in the lake, or may stop the table."""
    alike: dict[str, list[str]] = {}
    for column in columns:
        value = source_type(column)
        note = typetable.note(column.pg_type, value)
        if note and (value.kind is not LakeType.STRING or column.is_grid or is_kept_as_text(column)):
            name = typemap.postgresql_name(column.pg_type, column.typmod)
            lake = typemap.iceberg_name(value)
            told = f"{name}: {note}" if name == lake else f"{name} becomes {lake}: {note}"
            alike.setdefault(told, []).append(column.name)
    return [Decision(about="types", told=told, columns=tuple(found)) for told, found in alike.items()]


def render(found: Sequence[SourceListing]) -> str:
    """Return what is there for a person, database by database, with what is to be decided and what is left out."""
    lines: list[str] = []
    for one in found:
        lines += [" ".join(filter(None, ("source", one.source, f"({one.location})"))).replace("source (", "("), ""]
        lines += [f"  error: {one.error}", *([f"  hint: {one.hint}"] if one.hint else [])] if one.error else []
        lines += [*_render_tables(one.tables), ""] if one.error is None else [""]
    tables = [table for one in found for table in one.tables]
    lines.append(
        f"{len(tables)} tables, {sum(bool(table.decisions) for table in tables)} with something to decide,"
        f" {sum(table.type is None for table in tables)} to leave out"
    )
    return text.lines(lines)


def _render_tables(tables: Sequence[TableListing]) -> list[str]:
    has_map = any(table.is_mapped is not None for table in tables)
    headers = ("table", "type", "rows", "size", "key", *(("in the map",) if has_map else ()), "")
    lines = text.table(headers, [_row(table, has_map=has_map) for table in tables if table.type]).split("\n")
    lines += _render_decisions([table for table in tables if table.type])
    if left := [f"  {table.table}: {table.why}" for table in tables if table.type is None]:
        lines += ["", "left out:", *left]
    return lines


def _render_decisions(tables: Sequence[TableListing]) -> list[str]:
    """Return each decision with the tables that it is about: one that many have is told once."""
    alike: dict[str, list[str]] = {}
    for table in tables:
        for one in table.decisions:
            columns = f" ({', '.join(one.columns)})" if one.columns else ""
            alike.setdefault(dataclasses.replace(one, columns=()).sentence(), []).append(f"{table.table}{columns}")
    lines = [line for told, places in alike.items() for line in (f"  {told}", f"    {', '.join(places)}")]
    return ["", "to decide:", *lines] if lines else []


def _row(table: TableListing, *, has_map: bool) -> tuple[str, ...]:
    mapped = (("yes" if table.is_mapped else "no"),) if has_map else ()
    return (
        table.table, str(table.type or ""), rows(table.rows), figures.size(table.bytes), key(table), *mapped,
        f"{table.partitions} partitions" if table.kind == TableKind.PARTITIONED.value else "",
    )  # fmt: skip


def rows(count: int | None) -> str:
    """Return an estimate of rows for a person."""
    return "?" if count is None else f"{count:,}"


def key(table: TableListing) -> str:
    """Return what identifies a table's rows for a person."""
    columns = ", ".join(table.key)
    return (
        f"{columns} ({table.key_from})"
        if columns and table.key_from != "primary key"
        else columns or table.key_from or "none"
    )


def as_json(found: Sequence[SourceListing]) -> list[dict[str, Any]]:
    """Return the same ready for JSON."""
    return [dataclasses.asdict(one) for one in found]


__all__ = [
    "Decision",
    "SourceListing",
    "TableListing",
    "as_json",
    "chosen",
    "exit_code",
    "listed",
    "of_map",
    "of_url",
    "render",
]
