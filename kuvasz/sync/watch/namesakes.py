"""Whose rows those of a sid are, where several tables of a target would have the same one.

Rows are told apart by their sid alone. That of a source stands in the map, which is checked; those of tenants are
what `schemas` captures of the names that are there now, so two schemas may come to have one, or one that is another
source's. Of two schemas the one with rows in the lake goes on; another source does, whose sid the map says. Who is
refused waits as long as that lasts, and is copied again if other rows took the place of its own.
"""

from __future__ import annotations

import collections

from kuvasz.config import names
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import SchemaError, place_of
from kuvasz.sync.context.source_context import SourceContext


class Namesakes:
    """The tables of one source whose sid another one has.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._routes = context.shared.routes
        self._lake = context.shared.lake
        self._known: Source | None = None
        self._of: dict[tuple[str, str], list[SourceTableSpec]] = {}  # (target, sid) -> tables of tenants

    def refuse(self, spec: SourceTableSpec) -> None:
        """Refuse a table whose rows nothing would tell from another one's.

        Raises:
            SchemaError: It is such a table.
        """
        source = self._source_tables.source
        sid = source.sid if spec.tenant is None else spec.tenant
        if sid is None or not spec.has_sid:
            return
        first = spec if spec.tenant is None else self._first(spec, source)
        if first.key != spec.key:
            raise self._refusal(spec, sid, f"those of {first.table}")
        owner = self._holder(spec, source) or self._routes.own(source.name, spec.identifier, sid)
        if owner != source.name:
            self._troubles.miss_rows(spec)  # the other one's are in their place by now, or will be
            raise self._refusal(spec, sid, f"those of source {owner}")

    def _holder(self, spec: SourceTableSpec, source: Source) -> str | None:
        """Return which other source of the map the lake has a tenant's rows of; None: none, or they are there."""
        positions = self._lake.positions(spec.identifier)
        if spec.tenant is None or source.name_of(spec) in positions:
            return None
        alike = (name for name in positions if name.endswith(spec.tenant))  # there may be thousands
        of_tenant = (names.source_of(name) for name in alike if names.tenant_of(names.member_of(name)) == spec.tenant)
        return next((name for name in of_tenant if name != source.name and self._routes.has(name)), None)

    def _first(self, spec: SourceTableSpec, source: Source) -> SourceTableSpec:
        """Return which of the tables with a tenant's sid has it: one with rows in the lake, else the oldest."""
        if source is not self._known:
            self._of = _by_sid(source)
            self._known = source
        found = self._of.get((spec.identifier, spec.tenant or ""), [])
        if len(found) < 2:
            return spec
        positions = self._lake.positions(spec.identifier)
        return min(found, key=lambda one: (source.name_of(one) not in positions, one.oid))

    def _refusal(self, spec: SourceTableSpec, sid: str, whose: str) -> SchemaError:
        message = (
            f"{place_of(self._source_tables.source.name, spec.table)}: its rows would have the sid {sid!r} in"
            f" {spec.identifier}, as {whose} have"
        )
        hint = "rename the schema, or have `schemas` not take it in, or capture another part of its name"
        return SchemaError(message, hint=hint)


def _by_sid(source: Source) -> dict[tuple[str, str], list[SourceTableSpec]]:
    found: collections.defaultdict[tuple[str, str], list[SourceTableSpec]] = collections.defaultdict(list)
    for spec in source.tables:
        if spec.tenant is not None:
            found[spec.identifier, spec.tenant].append(spec)
    return found


__all__ = ["Namesakes"]
