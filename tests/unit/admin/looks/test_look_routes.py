"""Every verb is a route, and every route that is for a verb has one; or there is a reason."""

from __future__ import annotations

from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.config.model import Role
from tests.support import command_list

#: Verb -> the route that does the same.
_NAMED_OTHERWISE = {
    "discover": "map_list",
    "source list": "source_list",
    "source show": "source_get",
    "source add": "source_add",
    "source drop": "source_drop",
    "source drift": "drift",
    "source pause": "pause",
    "source resume": "resume",
}

#: Verbs without a route, and why.
_COMMANDS_ALONE = {
    "cleanup": "it is for a kuvasz that is stopped for good",
    "demo": "it has servers of its own",
    "wait": "it is /status, asked until it says so",
    "notes": "it shows what stands in the tables' properties",
    "trace": "it shows rows of tables, which no role of a token may read by HTTP",
    "source erase": "it is for a kuvasz that is stopped",
    "rejects": "it shows rows as well, and compares as verify does",
    "map import": "what comes by HTTP means itself, and the text of a map may have ${…} filled in",
    "map export": "it has passwords, where the map has them",
    "map versions": "it is for who exports one of them",
    "cluster nodes": "it asks the coordinator, also where no kuvasz runs",
}

#: Routes that are no verb, but for those of the map's entries.
_ROUTES_ALONE = {"livez", "readyz", "metrics", "openapi", "docs", "fleet_page", "table_page", "action_page"}


def test_every_verb_is_a_route_and_the_reverse() -> None:
    verbs, routes = set(command_list.verbs()), {route.name for route in ROUTES}
    assert verbs - routes == _NAMED_OTHERWISE.keys() | _COMMANDS_ALONE.keys()
    assert set(_NAMED_OTHERWISE.values()) <= routes
    entries = {name for name in routes if name.partition("_")[0] in {"db", "url", "tbl", "map", "source"}}
    assert routes - verbs - entries - set(_NAMED_OTHERWISE.values()) == _ROUTES_ALONE


def test_what_asks_servers_is_for_operators() -> None:
    assert {route.name for route in LOOK_ROUTES if route.role is Role.OPERATOR} == {"check", "plan", "drift"}
    assert all(route.role is not None for route in LOOK_ROUTES)
    assert {route.name: route.role for route in LOOK_ROUTES if route.changes} == {"init": Role.ADMIN}
