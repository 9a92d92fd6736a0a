"""Whether a table of a source can be replicated as the map wants it. Pure."""

from __future__ import annotations

import dataclasses

from kuvasz.config import names
from kuvasz.config.model import Initial
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import OptionRefused, RowsUnlogged, SchemaError, place_of
from kuvasz.model import TableType
from kuvasz.source import sql
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.rules import keyless
from kuvasz.sync.rules.targets import redacted_key, why_not_taken, wrong_type


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """Why a table cannot be replicated."""

    why: str
    hint: str | None
    verb: str = ""  #: between the table's name and the reason, where the reason does not speak for itself
    option: str = ""  #: of the map entry, `mask.name`, where one is wrong whatever becomes of the table

    def sentence(self, place: str) -> str:
        """Return the reason with the name of the table before it."""
        return f"{place}{self.verb}: {self.why}"


def why_unfit(spec: SourceTableSpec, table: SourceTable | None) -> Unfit | None:
    """Return why a table cannot be replicated as a map entry wants it; None if it can.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it; None if there is no such table.
    """
    if table is None or (spec.member and spec.oid != table.relation.oid):
        return Unfit(why="there is no such table", hint=names.missing(spec.table))
    if table.why_unsupported:
        hint = "take it out of the map"
        if not table.is_logged:
            which = "each of them" if table.leaves else sql.qualified(spec.table)
            hint = f"ALTER TABLE {which} SET LOGGED, or take it out of the map"
        return Unfit(why=table.why_unsupported, hint=hint, verb=" cannot be replicated")
    if not table.relation.key and (why := keyless.why_not(table, spec.config)):
        reason, _, mend = why.partition("; ")
        return Unfit(why=reason, hint=_ways(spec, table, mend))
    return why_unmapped(spec, table)


def _ways(spec: SourceTableSpec, table: SourceTable, mend: str) -> str | None:
    """Return all that helps a table without a key: at the source, and in the map."""
    if spec.config.key is not None:
        return mend or None
    in_map = "`key: [columns]`" if table.is_whole_row else "`type: append`, which takes its INSERTs alone,"
    return f"{mend}{' or ' if mend else ''}{in_map} in the map"


def why_unmapped(spec: SourceTableSpec, table: SourceTable | None) -> Unfit | None:
    """Return which option of a map entry does not fit a table that is there; None if all do."""
    if table is None or table.why_unsupported or (not table.relation.key and keyless.why_not(table, spec.config)):
        return None
    if why := why_not_taken(spec, _keyed(spec, table).relation):
        return Unfit(why=why, hint="mend the entry in the map")
    if column := wrong_type(spec, table.relation):
        option = "types" if column in spec.config.types else "decimals"
        asked = getattr(spec.config, option)[column]
        why = f"{option} has {column} be {asked}, which is for numeric and arrays of it"
        return Unfit(why=why, hint="take it out of the map, or have it be a string", option=f"{option}.{column}")
    is_clone = spec.config.type is TableType.CLONE
    if spec.config.initial is not Initial.COPY and is_clone and not _keyed(spec, table).relation.key:
        initial = f"initial is {spec.config.initial}"
        why = f"{initial}, and it has no key: rows that the lake lacks could not be told from others"
        return Unfit(why=why, hint="give it a key, at the source or by `key`, or have it copied", option="initial")
    if column := redacted_key(spec, _keyed(spec, table).relation):
        why = f"mask redacts {column}, which identifies the rows: all of them would be one"
        return Unfit(why=why, hint="hmac keeps rows apart", option=f"mask.{column}")
    return None


def checked(source: str, spec: SourceTableSpec, table: SourceTable | None) -> SourceTable:
    """Return a table with its key.

    Args:
        source: Its name.
        spec: What the map says of the table.
        table: As the catalog describes it; None if there is no such table.

    Raises:
        OptionRefused: An option of the map entry is wrong.
        SchemaError: It cannot be replicated.
        RowsUnlogged: And rows that changed meanwhile have to be looked for.
    """
    if (unfit := why_unfit(spec, table)) is not None:
        message = unfit.sentence(place_of(source, spec.table))
        if unfit.option:
            raise OptionRefused(message, hint=unfit.hint, option=unfit.option)
        kind = SchemaError if table is None or table.is_logged else RowsUnlogged
        raise kind(message, hint=unfit.hint)
    assert table is not None
    return _keyed(spec, table)


def _keyed(spec: SourceTableSpec, table: SourceTable) -> SourceTable:
    return table if table.relation.key else keyless.with_key(table, spec.config)


__all__ = ["Unfit", "checked", "why_unfit", "why_unmapped"]
