"""What is asked for with `POST /api/cut`, and what is answered."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz import lsn
from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.config import names, units
from kuvasz.errors import CutRefused, LakeError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.app import App
    from kuvasz.worker.cuts import LakeCut

_log = EventLog(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class CutRequests:
    """Requests for cuts. On the loop.

    Args:
        app: The application whose tables are cut.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def answer(self, request: web.Request) -> web.Response:
        """Make a cut; the answer comes when it is there."""
        body: Mapping[str, Any] = request[BODY]
        database = body.get("database")
        name = body.get("name") or f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}"
        if not _NAME.fullmatch(name):
            raise RequestRefused(400, f"name {name!r}: not the name of a cut", "letters, digits, `_`, `.` and `-`")
        try:
            keep_s = units.parse_duration(body.get("keep", "1d"))
        except ValueError as error:
            raise RequestRefused(400, f"keep: {error}", "write `keep: 1d`") from error
        groups = {sync.source.name: sync.source.database for sync in self._app.sources}
        sources = [source for source, group in groups.items() if database in {None, group}]
        if not sources:
            known = ", ".join(sorted(set(groups.values())))
            raise RequestRefused(404, f"the map has no database {database!r}", f"it has: {known}")
        try:
            made = await self._app.cuts.make(names.CUT_PREFIX + name, sources, keep_s)
        except (CutRefused, LakeError) as error:
            raise RequestRefused(409, error.message, error.hint) from error
        return web.json_response(tell_cut(name, person(request), made))


def tell_cut(name: str, by: str, made: LakeCut) -> dict[str, Any]:
    """Tell of a cut that was made; return it ready for JSON."""
    found = _as_json(name, made)
    _log.tell(Event.CUT, cut=name, by=by, lsns=found["lsns"], snapshots=found["snapshots"])
    return found


def _as_json(name: str, made: LakeCut) -> dict[str, Any]:
    return {
        "name": name,
        "tag": made.tag,
        "lsns": {source: lsn.render(at) for source, at in sorted(made.lsns.items())},
        "snapshots": dict(sorted(made.snapshots.items())),
    }


__all__ = ["CutRequests", "tell_cut"]
