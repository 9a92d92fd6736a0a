"""What is asked for with `POST /api/map/{id}/create`: the target of a table that the map does not have, empty."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries import map_change
from kuvasz.admin.entries.entry_answers import number_of, unknown
from kuvasz.config import check, names
from kuvasz.config import sources as config_sources
from kuvasz.config.model import TableConfig
from kuvasz.errors import TableError
from kuvasz.model import TableType
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.targets import feed_of, target_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.admin.entries.entry_answers import EntryAnswers
    from kuvasz.admin.entries.list_query import Record
    from kuvasz.admin.entries.records import MappedTable
    from kuvasz.app import App
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec


def asked_table(request: web.Request, found: Record) -> dict[str, Any]:
    """Return what a request wants to become of a table that the map does not have.

    Args:
        request: With `type`, `target` and `partitions_regex`.
        found: The table, as it is shown.

    Raises:
        RequestRefused: The map has it, or there is no such type.
    """
    if found["replicated"]:
        message = f"the map has the table {found['schema']}.{found['name']} already"
        raise RequestRefused(409, message, "PUT /api/tbl/{id} changes it")
    kind = request.query.get("type") or TableType.CLONE.value
    if kind not in {one.value for one in TableType}:
        known = ", ".join(one.value for one in TableType)
        raise RequestRefused(400, f"type has to be one of {known}, and is {kind[:50]!r}", code="invalid_type")
    return {
        **{field: found[field] for field in ("db_id", "schema", "name")},
        "type": kind,
        "target": request.query.get("target") or found["name"].replace(".", "_"),
        "partitions_regex": request.query.get("partitions_regex"),
    }


class TargetRequests:
    """Requests for targets. On the loop.

    Args:
        app: The application in whose lake they are.
        answers: Shows tables.
    """

    def __init__(self, app: App, answers: EntryAnswers) -> None:
        self._app = app
        self._answers = answers

    async def answer(self, request: web.Request) -> web.Response:
        """Create a target; the answer comes when it is there."""
        found = await self._answers.mapped(number_of(request))
        if found is None:
            raise unknown(request)
        table, shown = found
        given = asked_table(request, shown)
        source, spec = _would_be(self._app.config, table, given)
        if not await asyncio.to_thread(self._create, table, source, spec):
            raise RequestRefused(409, f"the lake has the table {spec.identifier} already", "give it another `target`")
        return web.json_response({**shown, "type": given["type"], "target": given["target"], "present": True})

    def _create(self, table: MappedTable, source: Source, spec: SourceTableSpec) -> bool:
        first = next(iter(table.found), None)
        if first is None:
            message = f"nobody knows the columns of {table.table}: no source of {source.database!r} answers"
            raise RequestRefused(409, message, "POST /api/map/refresh asks them again")
        secret = (self._app.config.pipeline.mask_secret or "").encode()
        try:
            relation = eligibility.checked(source.name, spec, first).relation
            return self._app.lake.create(target_of(spec, secret), feed_of(source, spec), relation)
        except TableError as error:
            raise RequestRefused(409, error.message, error.hint) from error


def _would_be(config: Config, table: MappedTable, given: Mapping[str, Any]) -> tuple[Source, SourceTableSpec]:
    """Return a source of a group, and what of it a table would be, were it in the map.

    Raises:
        RequestRefused: The map would be faulty.
    """
    said = TableConfig.model_validate(map_change.new_table(table.table, given))
    name = table.database.group.database
    groups = tuple(
        group.model_copy(update={"tables": {**group.tables, names.render_table(table.table): said}})
        if group.database == name
        else group
        for group in config.databases
    )
    made = config.model_copy(update={"databases": groups})
    if wrong := [one.message for one in check.problems(made)]:
        raise RequestRefused(409, f"the map would be faulty: {wrong[0]}")
    for source in config_sources.resolve(made):
        for spec in source.tables if source.database == name else ():
            if spec.table == table.table:
                return source, spec
    raise RequestRefused(409, f"the group {name!r} has no source", "add one first: POST /api/url")


__all__ = ["TargetRequests", "asked_table"]
