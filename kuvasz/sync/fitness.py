"""Whether a table of a source can be replicated as the map wants it. Pure."""

from __future__ import annotations

import dataclasses

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import RowsUnlogged, SchemaError
from kuvasz.source.table import SourceTable
from kuvasz.sync import keyless
from kuvasz.sync.targets import why_not_taken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """Why a table cannot be replicated."""

    why: str
    hint: str | None
    verb: str = ""  #: between the table's name and the reason, where the reason does not speak for itself

    def sentence(self, place: str) -> str:
        """Return the reason with the name of the table before it."""
        return f"{place}{self.verb}: {self.why}"


def why_unfit(spec: SourceTableSpec, table: SourceTable | None) -> Unfit | None:
    """Return why a table cannot be replicated as a map entry wants it; None if it can.

    Args:
        spec: Of the map.
        table: As the catalog describes it; None if there is no such table.
    """
    if table is None or (spec.member and spec.member != str(table.relation.oid)):
        return Unfit(why="there is no such table", hint="create it, or take it out of the map")
    if table.why_unsupported:
        hint = "take it out of the map" if table.is_logged else "ALTER TABLE … SET LOGGED, or take it out of the map"
        return Unfit(why=table.why_unsupported, hint=hint, verb=" cannot be replicated")
    if not table.relation.key and (why := keyless.why_not(table, spec.config)):
        return Unfit(why=why, hint=table.mend or None)
    if why := why_not_taken(spec, _keyed(spec, table).relation):
        return Unfit(why=why, hint="mend the entry in the map")
    return None


def checked(source: str, spec: SourceTableSpec, table: SourceTable | None) -> SourceTable:
    """Return a table with its key.

    Args:
        source: Its name.
        spec: Of the map.
        table: As the catalog describes it; None if there is no such table.

    Raises:
        SchemaError: It cannot be replicated.
        RowsUnlogged: And rows that changed meanwhile have to be looked for.
    """
    if (unfit := why_unfit(spec, table)) is not None:
        kind = SchemaError if table is None or table.is_logged else RowsUnlogged
        raise kind(unfit.sentence(f"source {source}, table {spec.table}"), hint=unfit.hint)
    assert table is not None
    return _keyed(spec, table)


def _keyed(spec: SourceTableSpec, table: SourceTable) -> SourceTable:
    return table if table.relation.key else keyless.with_key(table, spec.config)


__all__ = ["Unfit", "checked", "why_unfit"]
