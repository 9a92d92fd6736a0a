"""What the routes of the map's entries answer to who only looks."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries import numbered, records
from kuvasz.admin.entries.entry_routes import TOTAL
from kuvasz.admin.entries.entry_shapes import LIST_FIELDS
from kuvasz.admin.entries.list_query import ListQuery, Record
from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kuvasz.admin.door import Handler
    from kuvasz.admin.entries.numbered import NumberedMap
    from kuvasz.admin.entries.records import MappedTable
    from kuvasz.admin.entries.source_shelf import Found
    from kuvasz.admin.observer import Observer
    from kuvasz.app import App
    from kuvasz.config.secrets import Redactor
    from kuvasz.state.ports import StoredNumbers

_Make: TypeAlias = "Callable[[], Awaitable[list[Record]]]"

#: More digits are no number that was ever given.
_NUMBER: Final = re.compile(r"[0-9]{1,18}")

#: Tables in these states have a target; of others the catalog is asked.
_PRESENT: Final = frozenset({State.STREAMING, State.CATCHING_UP})


class EntryAnswers:
    """The entries of the map that runs.

    Args:
        app: The application.
        observer: Sees it.
        numbers: What entries are called by.
        redact: Takes secrets out.
    """

    def __init__(self, app: App, observer: Observer, numbers: StoredNumbers, redact: Redactor) -> None:
        self._app = app
        self._observer = observer
        self._numbers = numbers
        self._redact = redact
        self._shelf = SourceShelf()

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        found: dict[str, Handler] = {"map_refresh": self._refresh}
        for path, shape, make in (
            ("db", "Database", self.databases),
            ("url", "SourceUrl", self.urls),
            ("tbl", "TableEntry", self.tables),
            ("map", "MapEntry", self.mapping),
        ):
            found[f"{path}_list"] = functools.partial(_some, make, LIST_FIELDS[shape])
            found[f"{path}_get"] = functools.partial(_one, make)
        return found

    async def known(self) -> NumberedMap:
        """Return the entries of the map that runs."""
        return await asyncio.to_thread(numbered.number, self._app.config, self._numbers)

    async def databases(self) -> list[Record]:
        """Return the groups."""
        return [records.database(one) for one in (await self.known()).databases]

    async def urls(self) -> list[Record]:
        """Return the sources."""
        known = await self.known()
        views = await self._observer.show(lambda now: {source.name: source for source in now.view.sources})
        return [records.url(one, views.get(one.source), self._redact) for one in known.urls]

    async def tables(self) -> list[Record]:
        """Return the tables of the map."""
        known = await self.known()
        return [records.table(one, known.config.lake) for one in known.tables]

    async def mapping(self) -> list[Record]:
        """Return the tables of the map, and those that its sources have besides."""
        known = await self.known()
        return (await asyncio.to_thread(self._mapping, known, await self._shelf.look(known.config)))[1]

    async def mapped(self, number: int) -> tuple[MappedTable, Record] | None:
        """Return a table of the sources, or of the map, with how it is shown; None if nothing has the number."""
        known = await self.known()
        tables, shown = await asyncio.to_thread(self._mapping, known, await self._shelf.look(known.config))
        return next((pair for pair in zip(tables, shown, strict=True) if pair[1]["id"] == number), None)

    def _mapping(self, known: NumberedMap, found: Found) -> tuple[Sequence[MappedTable], list[Record]]:
        """Return the tables that there are, each with how it is shown; in a thread: of a fleet it takes seconds."""
        lake, tables = known.config.lake, records.mapped_tables(known, found)
        numbers = numbered.number_mapping(self._numbers, [one.name for one in tables])
        present = self._present({records.identifier(one, lake) for one in known.followed})
        return tables, [records.mapping(one, numbers[one.name], lake, present) for one in tables]

    def _present(self, targets: Collection[str]) -> set[str]:
        """Return the targets that are in the lake."""
        settled = {state.target for state in self._app.states.snapshot() if state.state in _PRESENT}
        return {target for target in targets if target in settled or self._app.lake.recorded(target)}

    async def _refresh(self, _: web.Request) -> web.Response:
        await self._shelf.look(self._app.config, anew=True)
        return web.json_response(None)


async def _some(make: _Make, fields: Collection[str], request: web.Request) -> web.Response:
    query, entries = ListQuery.of(request.query, fields), await make()

    def chosen() -> tuple[bytes, int]:
        found, total = query.chosen(entries)
        return json.dumps(found).encode(), total

    body, total = await asyncio.to_thread(chosen)
    return web.Response(body=body, content_type="application/json", charset="utf-8", headers={TOTAL: str(total)})


async def _one(make: _Make, request: web.Request) -> web.Response:
    number = number_of(request)
    for one in await make():
        if one["id"] == number:
            return web.json_response(one)
    raise unknown(request)


def number_of(request: web.Request) -> int:
    """Return the number in a request's path.

    Raises:
        RequestRefused: There is no number.
    """
    given = request.match_info["id"]
    if _NUMBER.fullmatch(given) is None:
        hint = f"ask {request.path.rpartition('/')[0]} which there are"
        raise RequestRefused(400, f"the id has to be a whole number, and is {given[:50]!r}", hint, code="invalid_id")
    return int(given)


def unknown(request: web.Request) -> RequestRefused:
    """Return what is told of a number that nothing has."""
    path, _, number = request.path.removeprefix("/api/").partition("/")
    return RequestRefused(404, f"there is no {path} {number.partition('/')[0]}", f"ask /api/{path} which there are")


__all__ = ["EntryAnswers", "number_of", "unknown"]
