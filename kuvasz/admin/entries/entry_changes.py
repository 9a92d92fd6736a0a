"""What the routes do that change the map's entries: its file is changed, and kuvasz goes by it at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused, refused_map
from kuvasz.admin.entries import map_change, numbered
from kuvasz.admin.entries.entry_answers import EntryAnswers, number_of, unknown
from kuvasz.admin.entries.map_change import MapChange, WrittenMap
from kuvasz.admin.entries.numbered import EntryKind
from kuvasz.admin.entries.target_request import TargetRequests, asked_table
from kuvasz.errors import ConfigError, KuvaszError, MapBusy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kuvasz.admin.door import Handler
    from kuvasz.admin.entries.list_query import Record
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.admin.observer import Observer
    from kuvasz.app import App
    from kuvasz.config.model import Config
    from kuvasz.config.secrets import Redactor
    from kuvasz.config.written.map_edit import MapEdit
    from kuvasz.state.ports import StoredNumbers

#: What a request makes of the map.
_Make: TypeAlias = Callable[[WrittenMap], MapChange]


class EntryChanges:
    """Changes the map that runs.

    Args:
        app: The application.
        live_map: Its map.
        numbers: What entries are called by.
        answers: Shows entries.
        redact: Takes secrets out.
    """

    def __init__(
        self, app: App, live_map: LiveMap, numbers: StoredNumbers, answers: EntryAnswers, redact: Redactor
    ) -> None:  # fmt: skip
        self._app = app
        self._live_map = live_map
        self._numbers = numbers
        self._answers = answers
        self._redact = redact

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        found: dict[str, Handler] = {"map_clone": self._clone, "url_restart": self._restart}
        kinds: tuple[tuple[EntryKind, Any, Any, Any], ...] = (
            (EntryKind.DATABASE, map_change.add_group, map_change.change_group, map_change.drop_group),
            (EntryKind.URL, map_change.add_url, map_change.change_url, map_change.drop_url),
            (EntryKind.TABLE, map_change.add_table, map_change.change_table, map_change.drop_table),
        )
        for kind, add, change, drop in kinds:
            found[f"{kind}_post"] = functools.partial(self._add, kind, add)
            found[f"{kind}_put"] = functools.partial(self._put, kind, change)
            found[f"{kind}_delete"] = functools.partial(self._delete, kind, drop)
        return found

    async def _add(self, kind: EntryKind, add: Callable[..., MapChange], request: web.Request) -> web.Response:
        change = await self._change(request, lambda written: add(written, request[BODY]))
        return web.json_response(await self._shown(kind, change))

    async def _put(self, kind: EntryKind, make: Callable[..., MapChange], request: web.Request) -> web.Response:
        number = number_of(request)
        change = await self._change(
            request, lambda written: make(written, _found(kind, written, number, request), request[BODY])
        )
        return web.json_response(await self._shown(kind, change))

    async def _delete(self, kind: EntryKind, drop: Callable[..., MapChange], request: web.Request) -> web.Response:
        number = number_of(request)
        await self._change(request, lambda written: drop(written, _found(kind, written, number, request)))
        return web.json_response(None)

    async def _clone(self, request: web.Request) -> web.Response:
        """Add a table of the sources to the map."""
        number = number_of(request)
        found = next((one for one in await self._answers.mapping() if one["id"] == number), None)
        if found is None:
            raise unknown(request)
        given = asked_table(request, found)
        await self._change(request, lambda written: map_change.add_table(written, given))
        return web.json_response(_with(number, await self._answers.mapping()))

    async def _restart(self, _: web.Request) -> web.Response:
        """Have all sources ended and begun again."""
        try:
            async with self._live_map.turn:  # a change that is being written is put into use before
                self._app.restart()
        except ConfigError as error:
            raise refused_map(error, self._redact) from error
        return web.json_response(None)

    async def _change(self, request: web.Request, make: _Make) -> MapChange:
        """Have the map changed, and its entries keep their numbers.

        Raises:
            RequestRefused: Nothing is changed.
        """
        made: list[MapChange] = []

        def edit(config: Config, plain: dict[str, Any]) -> Sequence[MapEdit]:
            written = WrittenMap(known=numbered.number(config, self._numbers), plain=plain)
            made.append(make(written))
            for one in made[0].renamed:  # a kill may come between the map and the numbers
                self._numbers.announce(one.kind, one.before, one.after)
            return made[0].edits

        try:
            await self._live_map.change(person(request), edit)
        except MapBusy as error:  # what ends now may have written it
            raise refused_map(error, self._redact) from error
        except KuvaszError as error:
            for one in made[0].renamed if made else ():
                await asyncio.to_thread(self._numbers.announce, one.kind, one.before, one.before)
            if not isinstance(error, ConfigError):
                raise
            raise refused_map(error, self._redact) from error
        for one in made[0].renamed:
            await asyncio.to_thread(self._numbers.rename, one.kind, one.before, one.after)
        return made[0]

    async def _shown(self, kind: EntryKind, change: MapChange) -> Record:
        look = {
            EntryKind.DATABASE: self._answers.databases, EntryKind.URL: self._answers.urls,
            EntryKind.TABLE: self._answers.tables,
        }[kind]  # fmt: skip
        numbers = await asyncio.to_thread(self._numbers.given, kind, [change.name])
        return _with(numbers[change.name], await look())


def entry_handlers(
    app: App, observer: Observer, live_map: LiveMap, numbers: StoredNumbers, redact: Redactor
) -> dict[str, Handler]:  # fmt: skip
    """Return what each route of the map's entries does, by its name.

    Args:
        app: The application.
        observer: Sees it.
        live_map: Its map.
        numbers: What entries are called by.
        redact: Takes secrets out.
    """
    answers = EntryAnswers(app, observer, numbers, redact)
    changes = EntryChanges(app, live_map, numbers, answers, redact).handlers()
    return {**answers.handlers(), **changes, "map_create": TargetRequests(app, answers).answer}


def _with(number: int, entries: Iterable[Record]) -> Record:
    """Return the entry of a number that was given, or written, just now.

    Raises:
        RequestRefused: Somebody else has had it removed since.
    """
    for one in entries:
        if one["id"] == number:
            return one
    raise RequestRefused(409, "it was written, and somebody else has removed it since", "look at the list again")


def _found(kind: EntryKind, written: WrittenMap, number: int, request: web.Request) -> Any:  # noqa: ANN401
    """Return the entry of a number.

    Raises:
        RequestRefused: There is none.
    """
    known = written.known
    entries: Any = {EntryKind.DATABASE: known.databases, EntryKind.URL: known.urls, EntryKind.TABLE: known.tables}
    for one in entries[kind]:
        if one.number == number:
            return one
    raise unknown(request)


__all__ = ["EntryChanges", "entry_handlers"]
