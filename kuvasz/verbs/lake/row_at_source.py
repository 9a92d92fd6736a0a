"""What the sources have now of a row of the lake, shown no further than the map lets it into the lake."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz.errors import KuvaszError
from kuvasz.source import conninfo, row_lookup
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.table import TableKind
from kuvasz.sync.rules.targets import target_of
from kuvasz.verify.mapped_tables import members_of

if TYPE_CHECKING:
    from kuvasz.config.sources import Source, SourceTableSpec, TargetFeed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowAnswer:
    """The rows of one table of a source."""

    source: str
    table: str
    rows: tuple[Mapping[str, str | None], ...] = ()  #: by column of the lake, as PostgreSQL prints the source's
    hidden: tuple[str, ...] = ()  #: columns of the lake that are masked or computed, so that they are not shown
    why_not: str | None = None  #: nobody can tell
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return dataclasses.asdict(self)


def look(feeds: Sequence[TargetFeed], key: Mapping[str, str], sid: str | None) -> list[RowAnswer]:
    """Return what each table has that feeds a target.

    Args:
        feeds: The sources that are meant, with their tables.
        key: Column of the lake -> its value.
        sid: The sid of the rows; None: of any source.
    """
    return [
        _looked(feed.source, spec, key) for feed in feeds for spec in members_of(feed.source, feed.spec, sid)
    ]  # fmt: skip


def _looked(source: Source, spec: SourceTableSpec, key: Mapping[str, str]) -> RowAnswer:
    told = RowAnswer(source=source.name, table=str(spec.table))
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            found = introspect.load_relation(connection, spec.table)
            if found is None:
                return dataclasses.replace(told, why_not="there is no such table")
            plain, hidden = columns(spec, [column.name for column in found.relation.columns])
            lost = [name for name in key if name not in plain]
            if lost:
                why = f"{', '.join(lost)} is masked or computed: no row of the source can be found by it"
                return dataclasses.replace(told, why_not=why, hidden=hidden)
            wanted = {plain[name]: text for name, text in key.items()}
            rows = row_lookup.rows(
                connection, spec.table, list(plain.values()), wanted,
                is_partitioned=found.kind is TableKind.PARTITIONED,
            )  # fmt: skip
    except KuvaszError as error:
        return dataclasses.replace(told, why_not=error.message, hint=error.hint)
    named = tuple({name: row[column] for name, column in plain.items()} for row in rows)
    return dataclasses.replace(told, rows=named, hidden=hidden)


def columns(spec: SourceTableSpec, at_source: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return which columns of the lake are columns of the source as they are, by its name, and which are not. Pure.

    Args:
        spec: What the map says.
        at_source: The source's columns.
    """
    target = target_of(spec)
    if target.set is None:
        taken = {name: name for name in at_source if target.takes(name)}
    else:
        by_name = {name.lower(): name for name in at_source}
        taken = {name: by_name.get(text.strip().strip("`").lower(), "") for name, text in target.set.items()}
    plain = {name: column for name, column in taken.items() if column and name not in target.mask}
    return plain, tuple(name for name in taken if name not in plain)


__all__ = ["RowAnswer", "columns", "look"]
