"""What is asked for of the map's text: given out, taken in, and what it was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused, refused_map
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.door import Handler
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.config.secrets import Redactor
    from kuvasz.config.written.map_store import MapStore

_VERSIONS = "ask /api/map/versions which there are"

_NOTHING: dict[str, Any] = {"added": [], "removed": [], "changed": [], "needs_restart": []}


class MapRequests:
    """Requests for the text. On the loop.

    Args:
        live_map: The map that runs.
        redact: Takes secrets out of what is refused.
    """

    def __init__(self, live_map: LiveMap, redact: Redactor) -> None:
        self._live_map = live_map
        self._redact = redact

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        return {"map_versions": self._versions, "map_export": self._export, "map_import": self._import}

    async def _versions(self, _: web.Request) -> web.Response:
        store = self._store()
        try:
            found = await asyncio.to_thread(store.versions)
        except ConfigError as error:
            raise refused_map(error, self._redact) from error
        return web.json_response([one.as_json() for one in found])

    async def _export(self, request: web.Request) -> web.Response:
        store, wanted = self._store(), request.query.get("version")
        if unknown := [name for name in request.query if name != "version"]:
            raise RequestRefused(400, f"the unknown parameter {unknown[0]!r}", "there is version")
        if wanted is not None and not (wanted.isascii() and wanted.isdecimal() and 0 < int(wanted[:19]) < 1 << 62):
            raise RequestRefused(400, f"version {wanted!r} is no whole number from 1 on", _VERSIONS)
        try:
            text = await asyncio.to_thread(store.raw, None if wanted is None else int(wanted))
        except ConfigError as error:
            raise refused_map(error, self._redact, 409 if wanted is None else 404) from error
        return web.Response(body=text, content_type="application/yaml", charset="utf-8")

    async def _import(self, request: web.Request) -> web.Response:
        try:
            found = await self._live_map.replace(person(request), request[BODY]["text"])
        except ConfigError as error:
            raise refused_map(error, self._redact) from error
        told = _NOTHING if found is None else found.as_json()
        return web.json_response(self._redact.clean({"verb": "import", **told}), status=200 if found is None else 202)

    def _store(self) -> MapStore:
        loaded = self._live_map.loaded
        if loaded is None or loaded.store is None:
            raise RequestRefused(409, "the map is from no file", "start kuvasz with --config")
        return loaded.store


__all__ = ["MapRequests"]
