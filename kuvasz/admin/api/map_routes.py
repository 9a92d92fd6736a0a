"""The routes of the map's text: given out, taken in, and what it was. Pure."""

from __future__ import annotations

from typing import Final

from kuvasz.admin.api.route import (
    ERROR,
    TOKEN_ANSWERS,
    Body,
    BodyField,
    FieldKind,
    Parameter,
    Route,
    RouteAnswer,
    writing_answers,
)  # fmt: skip
from kuvasz.admin.api.shapes import ref
from kuvasz.config.model import Role

#: Bytes of a request that brings a map: those of 5,000 sources have some.
MOST_MAP: Final = 32 << 20

_EXAMPLE: Final = "databases: [{database: shop, urls: [{url: postgresql://eu1/shop, sid: eu}], tables: {items: }}]"

_REFUSED: Final = {400: RouteAnswer(about="What was asked for makes no sense.", schema=ERROR), **TOKEN_ANSWERS}

_FROM_NO_FILE: Final = RouteAnswer(about="The map is from no file, or that cannot be read.", schema=ERROR)

MAP_ROUTES: Final = (
    Route(
        name="map_versions", method="GET", path="/api/map/versions", summary="What the map was, and who wrote it",
        about="The newest first. As `kuvasz map versions --json`.", role=Role.VIEWER,
        answers={
            200: RouteAnswer(
                about="The versions.",
                schema={
                    "type": "array",
                    "items": {"type": "object", "required": ["version", "at", "by", "bytes", "digest"]},
                },
            ),
            **TOKEN_ANSWERS,
            409: _FROM_NO_FILE,
        },
    ),
    Route(
        name="map_export", method="GET", path="/api/map/export", summary="The map's text as it is kept",
        about="With comments and references, and with passwords that are written in it: each request is told in the"
        " log. As `kuvasz map export`.",
        role=Role.ADMIN, shows_secrets=True,
        parameters=(
            Parameter(
                name="version", about="An earlier one: see `/api/map/versions`.",
                schema={"type": "integer", "minimum": 1}, example="3",
            ),
        ),
        answers={
            200: RouteAnswer(about="The text.", schema={"type": "object"}, media="application/yaml"),
            **_REFUSED,
            404: RouteAnswer(about="There is no such version.", schema=ERROR),
            409: _FROM_NO_FILE,
        },
    ),
    Route(
        name="map_import", method="POST", path="/api/map/import", summary="Give the map another text",
        about="It is checked as a whole, written, and put into use; what cannot follow without a restart is refused,"
        " and what it refers to by `${…}` the map has to refer to already. As `kuvasz map import`.",
        role=Role.ADMIN, writes_map=True,
        body=Body(
            fields=(
                BodyField(
                    name="text", kind=FieldKind.TEXT, about="The text, in YAML.", is_required=True,
                    example=_EXAMPLE,
                ),
                BodyField(
                    name="by", kind=FieldKind.TEXT, example="ann@laptop",
                    about="Who asks, for the log; the address of the client otherwise.",
                ),
            ),
            most=MOST_MAP,
        ),
        answers={
            200: RouteAnswer(about="The map has this text already.", schema=ref("MapDifference")),
            202: RouteAnswer(about="What is otherwise, and put into use.", schema=ref("MapDifference")),
            **_REFUSED,
            **writing_answers("The text is faulty or cannot follow, or somebody has changed the map meanwhile."),
        },
    ),
)  # fmt: skip

__all__ = ["MAP_ROUTES"]
