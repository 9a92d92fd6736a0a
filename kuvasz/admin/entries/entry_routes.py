"""The routes of the map's entries, which are those of kuvasz-streamer. Pure."""

from __future__ import annotations

from typing import Final

from kuvasz.admin.api.route import ERROR, TOKEN_ANSWERS, Parameter, Route, RouteAnswer
from kuvasz.admin.api.shapes import listed, ref
from kuvasz.admin.entries.change_routes import CHANGE_ROUTES, ID
from kuvasz.admin.entries.entry_shapes import LIST_FIELDS
from kuvasz.config.model import Role

TOTAL: Final = "X-Total-Count"


_UNKNOWN: Final = RouteAnswer(about="There is none of this number.", schema=ERROR)
_STATE: Final = RouteAnswer(about="Numbers cannot be kept in the state folder.", schema=ERROR)


def _list_parameters(shape: str) -> tuple[Parameter, ...]:
    fields = ", ".join(f"`{field}`" for field in LIST_FIELDS[shape])
    return (
        Parameter(
            name="sort", about=f"By which field: {fields}. Otherwise they come in the map's order.",
            schema={"type": "string"}, example='["id","ASC"]',
        ),
        Parameter(
            name="range", about="The first and the last that are wanted, counted from 0.",
            schema={"type": "string"}, example="[0,24]",
        ),
        Parameter(
            name="filter", about="Only those in which the same fields have these values; a list means any of it.",
            schema={"type": "string"}, example='{"id":[1,2]}',
        ),
    )  # fmt: skip


def _looking(path: str, shape: str, many: str, one: str, about: str) -> tuple[Route, Route]:
    """Return the routes that show all entries of a kind, and one of them."""
    return (
        Route(
            name=f"{path}_list", method="GET", path=f"/api/{path}", summary=many, about=about, role=Role.VIEWER,
            parameters=_list_parameters(shape),
            answers={
                200: RouteAnswer(
                    about="Those that are wanted.", schema=listed(ref(shape)),
                    headers={TOTAL: "How many there would be without `range`."},
                ),
                400: RouteAnswer(about="A parameter is malformed, or names an unknown field.", schema=ERROR),
                **TOKEN_ANSWERS,
                500: _STATE,
            },
        ),
        Route(
            name=f"{path}_get", method="GET", path=f"/api/{path}/{{id}}", summary=one, about=about, role=Role.VIEWER,
            parameters=(ID,),
            answers={
                200: RouteAnswer(about="It.", schema=ref(shape)),
                400: RouteAnswer(about="The number is none.", schema=ERROR),
                **TOKEN_ANSWERS,
                404: _UNKNOWN,
                500: _STATE,
            },
        ),
    )  # fmt: skip


_MAPPING: Final = (
    "The tables of the map, and those that its sources have besides, of the first source of each group that answers."
    " Sources are asked once, and again after `POST /api/map/refresh`."
)

ENTRY_ROUTES: Final = (
    *_looking("db", "Database", "The groups of the map", "A group of the map", "Its `database`, with a number."),
    *_looking("url", "SourceUrl", "The sources of the map", "A source of the map", "Its `url`, with how it is."),
    *_looking("tbl", "TableEntry", "The tables of the map", "A table of the map", "What the map says of it."),
    *_looking("map", "MapEntry", "The tables that there are", "A table that there is", _MAPPING),
    Route(
        name="map_refresh", method="POST", path="/api/map/refresh", summary="Have sources asked anew what they have",
        about="For `GET /api/map`. The map itself is read by `POST /api/map/reload`.", role=Role.OPERATOR,
        answers={
            200: RouteAnswer(about="They were asked; nothing is said of what they have.", schema={"type": "null"}),
            **TOKEN_ANSWERS,
        },
    ),
    *CHANGE_ROUTES,
)  # fmt: skip

__all__ = ["ENTRY_ROUTES", "TOTAL"]
