"""What the routes of a map's sources do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import views
from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused, refused_map
from kuvasz.admin.entries import map_change
from kuvasz.admin.sources import mapped_url, source_edits, source_records
from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.admin.sources.source_routes import SLOTS
from kuvasz.admin.views import ErrorView
from kuvasz.config import names
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.admin.door import Handler
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.admin.looks.look_answers import Look
    from kuvasz.admin.observer import Observer
    from kuvasz.admin.sources.source_records import SourceRecord
    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.config.secrets import Redactor
    from kuvasz.config.written.map_edit import MapEdit


class SourceAnswers:
    """The sources of the map that runs. On the loop.

    Args:
        app: The application.
        observer: Sees it.
        live_map: Its map.
        redact: Takes secrets out.
        looks: `check` of them looks at a source; without one it is added as it is.
    """

    def __init__(
        self, app: App, observer: Observer, live_map: LiveMap, redact: Redactor, looks: Mapping[str, Look]
    ) -> None:  # fmt: skip
        self._app = app
        self._observer = observer
        self._live_map = live_map
        self._redact = redact
        self._check = looks.get("check")

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        return {
            "source_list": self._list, "source_get": self._get, "source_add": self._add, "source_drop": self._drop,
        }  # fmt: skip

    async def _list(self, request: web.Request) -> web.Response:
        query = _query(request, {"database", "sid"})
        choice = SourceSelection(database=query.get("database"), sid=query.get("sid"))
        config, status = self._app.config, await self._status()
        return web.json_response(await asyncio.to_thread(source_records.records, config, status, choice))

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(await self._shown(request.match_info["name"]))

    async def _shown(self, name: str) -> SourceRecord:
        """Return a source by its whole name.

        Raises:
            RequestRefused: The map has none of this name.
        """
        config, status = self._app.config, await self._status()
        for one in source_records.records(config, status, SourceSelection()):
            if one["source"] == name:
                return source_records.with_tables(one, config, status)
        raise _unknown(name)

    async def _status(self) -> dict[str, Any]:
        """Return what is said of all sources to who may see what errors quote."""
        errors = ErrorView(redact=self._redact, is_trusted=True)
        return await self._observer.show(lambda now: views.status(now, errors))

    async def _add(self, request: web.Request) -> web.Response:
        given = request[BODY]
        name = names.source_name(given["database"], given.get("sid") or None)

        def prove(loaded: Loaded) -> None:
            if self._check is not None and not given.get("unchecked"):
                _refuse_unfit(name, self._check(loaded, {"source": [name]}))

        await self._change(
            request,
            lambda config, _: source_edits.added(config, given["database"], map_change.new_url(given)),
            prove=prove,
        )
        return web.json_response(await self._shown(name))

    async def _drop(self, request: web.Request) -> web.Response:
        name, slot = request.match_info["name"], _query(request, {"slot"}).get("slot")
        if slot is not None and slot not in SLOTS:
            raise RequestRefused(400, f"slot has to be one of {', '.join(SLOTS)}, and is {slot[:50]!r}")

        def drop(config: Config, _: dict[str, Any]) -> Sequence[MapEdit]:
            chosen = [one for one in mapped_url.all_of(config) if one.name == name]
            if not chosen:
                raise _unknown(name)
            return source_edits.dropped(chosen)

        await self._change(request, drop, may_drop=None if slot is None else slot == "drop")
        return web.json_response(None)

    async def _change(self, request: web.Request, edit: Any, **how: Any) -> None:  # noqa: ANN401 (as `LiveMap.change`)
        """Have the map changed.

        Raises:
            RequestRefused: Nothing is changed.
        """
        try:
            await self._live_map.change(person(request), edit, **how)
        except ConfigError as error:
            raise refused_map(error, self._redact) from error


def _query(request: web.Request, known: set[str]) -> dict[str, str]:
    """Return the parameters of a request.

    Raises:
        RequestRefused: One is unknown.
    """
    if unknown := [name for name in request.query if name not in known]:
        raise RequestRefused(400, f"the unknown parameter {unknown[0]!r}", f"there are {', '.join(sorted(known))}")
    return dict(request.query)


def _refuse_unfit(name: str, findings: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a source that cannot be replicated.

    Raises:
        ConfigError: What is wrong with it.
    """
    wrong = [one for one in findings if not one["ok"] and one["severity"] == "required"]
    if wrong:
        told = "; ".join(f"{one['check']}: {one['value']}" for one in wrong)
        raise ConfigError(f"{name} cannot be replicated: {told}", hint=wrong[0]["fix"] or None)


def _unknown(name: str) -> RequestRefused:
    return RequestRefused(404, f"the map has no source {name[:100]!r}", "GET /api/source lists them")


__all__ = ["SourceAnswers"]
