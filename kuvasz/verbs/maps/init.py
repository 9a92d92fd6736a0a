"""``kuvasz init``: looks at a database and writes a map of it, with a comment for whatever is to be decided.

Nothing secret is written: a password becomes a reference to a variable. The text is read by the loader that will read
the file, and each table in it is one that a start would take; others stand there as comments, with the reason.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.config import load, names, template
from kuvasz.config import sources as config_sources
from kuvasz.config.secrets import HIDDEN
from kuvasz.errors import ConfigError, SchemaError
from kuvasz.lake.format import schema
from kuvasz.model import TableName, TableType
from kuvasz.shown import figures
from kuvasz.source import conninfo
from kuvasz.source.catalog import inventory
from kuvasz.source.catalog.table import TableKind
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.targets import target_of
from kuvasz.verbs import text
from kuvasz.verbs.maps import discover
from kuvasz.verbs.maps.draft import Draft, DraftEntry

if TYPE_CHECKING:
    from kuvasz.config.sources import SourceTableSpec
    from kuvasz.config.template import Template
    from kuvasz.source.catalog.inventory import Inventory
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.verbs.maps.discover import TableListing

#: Of a map that is no file.
_HERE = Path()

#: What no name of a table in the lake may have (`kuvasz.config.check`), and what would part it.
_NOT_IN_TARGETS = re.compile(r'[/\\`".\x00-\x1f]')

#: libpq's parameter -> last word of the name of the variable that holds it, where it is not the parameter's own.
_SUFFIXES = {"password": "PW"}

#: What a pattern takes in; a partition is part of its root.
_TAKEN = frozenset({TableKind.TABLE, TableKind.PARTITIONED})

#: The pattern of all tables.
_ALL = "*.*"

#: Where references stand while a url is looked at.
_MARK = "kuvasz-reference"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapRequest:
    """What a map is asked for.

    Attributes:
        url: The database's url, as a map may have it: with ``${VAR}`` in place of secrets, or with the secrets.
        tables: Patterns, see `kuvasz.verbs.maps.discover.chosen`; none: all tables.
        excepted: Patterns of tables that are not wanted.
        database: The group's name in the map; the database's own by default.
        sid: The sid of the source, or None.
        has_patterns: Whether the map has patterns in place of the tables that they take in, also of later ones.
    """

    url: str = dataclasses.field(repr=False)
    tables: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    database: str | None = None
    sid: str | None = None
    has_patterns: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapOutcome:
    """A map that was made.

    Attributes:
        text: The map.
        variables: Variables that have to be set where kuvasz runs -> what each holds.
        tables: How many tables it has.
        left_out: How many stand in it as comments.
    """

    text: str
    variables: Mapping[str, str]
    tables: int
    left_out: int

    def render(self, path: Path) -> str:
        """Return what was written for a person, and what is next."""
        exports = "".join(f"export {name}=…; " for name in self.variables)
        return text.lines(
            (
                f"written: {path}: {self.tables} tables, {self.left_out} left out",
                f"next: {exports}kuvasz --config {shlex.quote(str(path))} check",
            )
        )


def run(request: MapRequest, path: Path | None, environ: Mapping[str, str] | None = None) -> MapOutcome:
    """Look at a database and write a map of it.

    Args:
        request: What is asked for.
        path: The file to be written; None: nothing is written.
        environ: For variables that the url refers to; the process's own by default.

    Raises:
        ConfigError: The url or a pattern is wrong, no table is left, or the file is there or cannot be written.
        SourceError: The server does not answer.
    """
    if path is not None and path.exists():
        raise _taken(path)
    environ = os.environ if environ is None else environ
    folder = _HERE if path is None else path.parent
    made = draft(request, inventory.take(discover.filled(request.url, environ, folder)), environ, folder)
    if path is not None:
        _write(path, made.text)
    return made


def draft(request: MapRequest, found: Inventory, environ: Mapping[str, str], folder: Path = _HERE) -> MapOutcome:
    """Return the map of a database that was looked at.

    Args:
        request: What is asked for.
        found: What the database has.
        environ: For variables that the url refers to.
        folder: The folder of the map, where relative paths begin.

    Raises:
        ConfigError: As `run`.
    """
    tables = discover.chosen(found.tables, request.tables, request.excepted)
    url, variables = _with_variables(request)
    database = request.database if request.database is not None else found.database
    made = Draft(
        heading=(), namespace=re.sub(r"[^\w-]+", "_", database).strip("_") or "kuvasz", database=database, url=url,
        sid=request.sid, entries=_entries(tables, found.extensions),
    )  # fmt: skip
    known = {**dict.fromkeys(variables, HIDDEN), **environ}
    made = _with_refusals(made, tables, known, folder)
    left_out = sum(bool(entry.left_out) for entry in made.entries)
    if not (wanted := len(made.entries) - left_out):
        raise _nothing(made.entries)
    if request.has_patterns:
        made = _with_patterns(
            made, request, {one.table for one in tables if one.kind in _TAKEN} - {*found.extensions}
        )
        load.of_text(made.text(), {**dict.fromkeys(variables, HIDDEN), **environ}, folder)
    made = dataclasses.replace(made, heading=_heading(found.location, variables))
    return MapOutcome(text=made.text(), variables=variables, tables=wanted, left_out=left_out)


def _with_variables(request: MapRequest) -> tuple[str, dict[str, str]]:
    """Return the url without any secret, and what the variables in it hold.

    Raises:
        ConfigError: It cannot be read, or has a secret beside references.
    """
    parts = template.parse(request.url)
    if all(isinstance(part, str) for part in parts):
        plain = "".join(part for part in parts if isinstance(part, str))
        of = {secret: _variable(request, secret, plain) for secret in conninfo.secrets_of(plain)}
        url = conninfo.with_references(plain, {secret: f"${{{name}}}" for secret, name in of.items()})
        return url, {name: f"the {secret} of {conninfo.location(plain)}" for secret, name in of.items()}
    _refuse_secrets(parts)
    return request.url, dict.fromkeys(sorted(template.variables(request.url)), "as --url has it")


def _refuse_secrets(parts: Template) -> None:
    """Refuse a url with references that has a secret beside them, which would be written into the map."""
    marked = "".join(part if isinstance(part, str) else _MARK for part in parts)
    defaults = [part for part in parts if isinstance(part, template.Variable) and part.default is not None]
    if marked.partition("?")[0] == _MARK:  # a variable holds the url
        marked = marked.replace(_MARK, "postgresql://", 1)
    is_repeated = conninfo.repeats_secrets(marked)  # of which only the last one counts, and all would be written
    if defaults or is_repeated or any(value != _MARK for value in conninfo.secrets_of(marked).values()):
        raise ConfigError(
            "--url: something secret may stand beside its references",
            hint="have ${VAR} or ${file:…} be the whole password, without a default",
        )


def _variable(request: MapRequest, secret: str, url: str) -> str:
    """Return the name of the variable that holds a secret: ``EU_PW``, by sid or database."""
    of = request.sid or request.database or conninfo.route(url)[1]
    plain = re.sub(r"[^A-Z0-9]+", "_", of.upper()).strip("_")
    name = f"{plain or 'SOURCE'}_{_SUFFIXES.get(secret, secret.upper())}"
    return f"_{name}" if name[0].isdigit() else name


def _entries(tables: Sequence[SourceTable], extensions: Mapping[TableName, str]) -> tuple[DraftEntry, ...]:
    listings = {table.table: discover.listed(table, extensions.get(table.table, "")) for table in tables}
    order = sorted(listings, key=lambda name: _rank(listings[name]))
    taken: set[str] = set()
    targets = {name: _target(name, taken) for name in order}
    return tuple(_entry(listing, targets[name]) for name, listing in listings.items())


def _rank(listing: TableListing) -> tuple[bool, bool, bool]:
    """Return who has the first choice of a name: the replicated, those of public, those in lower case."""
    is_folded = listing.name == listing.name.lower()
    return listing.type is None, listing.schema != names.DEFAULT_SCHEMA, not is_folded


def _target(table: TableName, taken: set[str]) -> str | None:
    """Return what a table has to be called in the lake, None for its own name, and take that.

    Names that differ in case only are one to many catalogs.
    """
    plain = table.name.replace(".", "_")
    clean = _NOT_IN_TARGETS.sub("_", table.name).strip() or "_"
    own = plain if not re.search(r"[/\\`\x00-\x1f]", plain) and plain.strip() else None
    with_schema = f"{_NOT_IN_TARGETS.sub('_', table.schema).strip()}_{clean}"
    further = (f"{with_schema}_{number}" for number in range(2, len(taken) + 3))
    name = next(one for one in (own, clean, with_schema, *further) if one is not None and one.lower() not in taken)
    taken.add(name.lower())
    return None if name == own else name


def _entry(listing: TableListing, target: str | None) -> DraftEntry:
    options = {} if listing.type is not TableType.APPEND else {"type": str(TableType.APPEND)}
    options |= {} if target is None else {"target": target}
    about = [discover.key(listing) if listing.type else "", *_size(listing)]
    decisions = tuple(one.sentence() for one in listing.decisions) if listing.type else ()
    left_out = listing.why if listing.type is None else ""
    comments = () if left_out else (f"key: {'; '.join(filter(None, about))}", *decisions)
    return DraftEntry(table=listing.table, options=options, comments=comments, left_out=left_out)


def _size(listing: TableListing) -> list[str]:
    rows = "never analysed" if listing.rows is None else f"about {listing.rows:,} rows"
    is_root = listing.kind == TableKind.PARTITIONED.value
    return [f"{rows}, {figures.size(listing.bytes)}", f"{listing.partitions} partitions" if is_root else ""]


def _with_refusals(made: Draft, tables: Sequence[SourceTable], environ: Mapping[str, str], folder: Path) -> Draft:
    """Return the draft with those tables left out that a start would refuse as the draft has them."""
    if all(entry.left_out for entry in made.entries):
        return made
    (source,) = config_sources.resolve(load.of_text(made.text(), environ, folder))
    by_name = {table.table: table for table in tables}
    whys = {names.render_table(spec.table): _why_refused(spec, by_name[spec.table]) for spec in source.tables}
    entries = (
        dataclasses.replace(entry, left_out=why) if (why := whys.get(entry.table)) else entry
        for entry in made.entries
    )
    return dataclasses.replace(made, entries=tuple(entries))


def _why_refused(spec: SourceTableSpec, table: SourceTable) -> str:
    """Return why a start would refuse a table as a map has it; empty if it would not."""
    if (unfit := eligibility.why_unfit(spec, table)) is not None:
        return "; ".join(filter(None, (unfit.why, unfit.hint)))
    try:
        schema.wanted(target_of(spec), table.relation)
    except SchemaError as error:
        return "; ".join(filter(None, (error.message, error.hint)))
    return ""


def _with_patterns(made: Draft, request: MapRequest, taken: Collection[TableName]) -> Draft:
    """Return the draft with patterns in place of those entries that say nothing else than they do.

    Args:
        made: The draft.
        request: What is asked for.
        taken: The tables that a pattern may take in, whatever is wrong with them.
    """
    patterns = [one for one in request.tables or (_ALL,) if names.is_pattern(one)]
    entries: list[DraftEntry] = []
    left = {names.parse_table(entry.table): entry for entry in made.entries}
    for pattern in patterns:
        alike = {table: entry for table, entry in left.items() if names.means(pattern, table)}
        plain = [entry for entry in alike.values() if not entry.left_out and not entry.options]
        refused = [entry.table for table, entry in alike.items() if entry.left_out and table in taken]
        if not plain:
            continue
        left = {table: entry for table, entry in left.items() if entry not in plain}
        excepted = (*request.excepted, *refused)
        told = (f"{entry.table}: {comment}" for entry in plain for comment in entry.comments)
        entries.append(
            DraftEntry(
                table=pattern, options={"except": excepted} if excepted else {},
                comments=(f"{len(plain)} tables now, and each that comes and is like it:", *told),
            )
        )  # fmt: skip
    return dataclasses.replace(made, entries=(*entries, *left.values()))


def _heading(location: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    needed = [f"  export {name}=…   # {what}" for name, what in variables.items()]
    if needed:
        needed = ["It refers to what has to be set where kuvasz runs, as it is, without any encoding:", *needed]
    return (
        f"What kuvasz replicates, and how. Made by `kuvasz init` from {location}; every key: docs/configuration.md.",
        *needed,
        "Read it, then: kuvasz --config FILE check, and plan.",
    )  # fmt: skip


def _nothing(entries: Sequence[DraftEntry]) -> ConfigError:
    if not entries:
        return ConfigError("there is no table to replicate", hint="look with `kuvasz discover` at what is there")
    first = f"{entries[0].table}: {entries[0].left_out}"
    more = f", and {len(entries) - 1} more" if len(entries) > 1 else ""
    return ConfigError(
        f"none of the tables can be replicated: {first}{more}", hint="`kuvasz discover` says why of each"
    )  # fmt: skip


def _write(path: Path, made: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(made)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot write {str(path)!r}: {reason}", hint="name another file with --output") from None


def _taken(path: Path) -> ConfigError:
    return ConfigError(
        f"{str(path)!r} is there already, and is not written over", hint="name another file with --output"
    )  # fmt: skip


__all__ = ["MapOutcome", "MapRequest", "draft", "run"]
