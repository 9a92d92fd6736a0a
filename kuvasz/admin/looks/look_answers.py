"""How the verbs that only look are answered: by what is handed in, on a thread, one of each kind at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from kuvasz.admin.api.asked import BODY
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Route
    from kuvasz.admin.door import Handler
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.config.load import Loaded
    from kuvasz.config.secrets import Redactor

#: Parameter, or field of the body -> what was given for it, in its order.
Query: TypeAlias = Mapping[str, Sequence[str]]

#: A verb: from the map that runs to what it finds there, ready for JSON.
Look: TypeAlias = "Callable[[Loaded, Query], Any]"

_ROUTES = {route.name: route for route in LOOK_ROUTES}


class LookAnswers:
    """What the routes of these verbs do. On the loop.

    Args:
        live_map: The map that runs.
        looks: Verb -> what answers it; one that is missing is not answered.
        redact: Takes secrets out.
    """

    def __init__(self, live_map: LiveMap, looks: Mapping[str, Look], redact: Redactor) -> None:
        self._live_map = live_map
        self._looks = looks
        self._redact = redact
        self._turns = {route.name: asyncio.Lock() for route in LOOK_ROUTES}

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        return {route.name: self._handler(route) for route in LOOK_ROUTES}

    def _handler(self, route: Route) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            look, loaded = self._looks.get(route.name), self._live_map.loaded
            if look is None or loaded is None:
                raise RequestRefused(404, f"this kuvasz does not answer {route.title}", "ask by the command")
            query = asked_of(request, route.name)
            if route.body is not None:
                body = request[BODY].items()
                query |= {name: value if isinstance(value, list) else [value] for name, value in body}
            async with self._turns[route.name]:  # each asks servers and catalog, and whoever waits asks no less
                try:
                    found = await asyncio.to_thread(look, loaded, query)
                except ConfigError as error:
                    raise RequestRefused(400, self._redact(error.message), error.hint) from error
            return web.json_response(self._redact.clean(found))

        return answer


def asked_of(request: web.Request, name: str) -> dict[str, Sequence[str]]:
    """Return what the query of a request for the route of a verb says.

    Raises:
        RequestRefused: The route has no such parameter.
    """
    known = [one.name for one in _ROUTES[name].parameters]
    if unknown := [given for given in request.query if given not in known]:
        hint = f"there are {', '.join(known)}" if known else "there is none"
        raise RequestRefused(400, f"the unknown parameter {unknown[0]!r}", hint)
    return {given: request.query.getall(given) for given in request.query}


__all__ = ["Look", "LookAnswers", "Query", "asked_of"]
