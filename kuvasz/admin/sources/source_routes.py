"""The routes of a map's sources, by their names and by patterns. Pure."""

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
    Schema,
    writing_answers,
)
from kuvasz.config.model import Role

_SOURCE: Final[Schema] = {"$ref": "#/components/schemas/FleetSource"}
_TEXT: Final[Schema] = {"type": "string"}

_WRITES: Final = {
    **TOKEN_ANSWERS,
    **writing_answers(
        "The source cannot be replicated; or the map would be faulty, cannot follow without a restart, was"
        " changed in its file by somebody else, or its last change is still under way: nothing is changed."
    ),
}
_NONE: Final = RouteAnswer(about="The map has no source of this name.", schema=ERROR)

_NAME: Final = Parameter(
    name="name", about="What kuvasz calls it, as in its slot's name.", schema=_TEXT, example="shop_eu",
    is_in_path=True,
)  # fmt: skip

SLOTS: Final = ("drop", "keep")

SOURCE_ROUTES: Final = (
    Route(
        name="source_list", method="GET", path="/api/source", summary="The sources, and how they are",
        about="With tenants, where a source has a schema for each. As `kuvasz source list --json`.", role=Role.VIEWER,
        parameters=(
            Parameter(
                name="database", about="Only of these groups: `*` stands for any text.", schema=_TEXT, example="shop*"
            ),
            Parameter(
                name="sid", about="Only of these sids, names or tenants: `*` stands for any text.", schema=_TEXT,
                example="de_*",
            ),
        ),
        answers={
            200: RouteAnswer(about="In the map's order.", schema={"type": "array", "items": _SOURCE}),
            400: RouteAnswer(about="A parameter is unknown.", schema=ERROR), **TOKEN_ANSWERS,
        },
    ),
    Route(
        name="source_get", method="GET", path="/api/source/{name}", summary="A source with its tables",
        about="As `kuvasz source show --json` has them.", role=Role.VIEWER, parameters=(_NAME,),
        answers={200: RouteAnswer(about="It.", schema=_SOURCE), **TOKEN_ANSWERS, 404: _NONE},
    ),
    Route(
        name="source_add", method="POST", path="/api/source", summary="Add a source to a group",
        about="It is looked at as `kuvasz check` does, written into the map's file, and begun.", role=Role.ADMIN,
        writes_map=True,
        body=Body(
            fields=(
                BodyField(
                    name="database", kind=FieldKind.TEXT, about="Its group, which says what tables it has.",
                    example="shop", is_required=True,
                ),
                BodyField(
                    name="sid", kind=FieldKind.LINE, example="de",
                    about="What identifies its rows; nothing where it is the only source.",
                ),
                BodyField(
                    name="url", kind=FieldKind.TEXT, example="postgresql://repl:secret@de1/shop", is_required=True,
                    about="Where it is. `${…}` is refused.",
                ),
                BodyField(
                    name="replication_url", kind=FieldKind.LINE, example=None,
                    about="Who replicates it, if that is another role, as `replication_url` of a map's url. `${…}` is"
                    " refused.",
                ),
                BodyField(
                    name="schemas", kind=FieldKind.LINE, example=None,
                    about="Takes a schema for each tenant, as `schemas` of a map's url.",
                ),
                BodyField(
                    name="unchecked", kind=FieldKind.SWITCH, example=False,
                    about="Whether it is added without a look at it: it may not be there yet.",
                ),
            ),
        ),
        answers={
            200: RouteAnswer(about="It, as it is now.", schema=_SOURCE),
            400: RouteAnswer(about="A field is missing, wrong or unknown.", schema=ERROR), **_WRITES,
        },
    ),
    Route(
        name="source_drop", method="DELETE", path="/api/source/{name}", summary="Take a source out of the map",
        about="Its stream ends, and its rows stay in the lake.", role=Role.ADMIN, writes_map=True,
        parameters=(
            _NAME,
            Parameter(
                name="slot", about="What becomes of slot and publication; else `map.drop_removed` says so.",
                schema={"type": "string", "enum": list(SLOTS)}, example="drop",
            ),
        ),
        answers={
            200: RouteAnswer(about="It is out of the map.", schema={"type": "null"}),
            400: RouteAnswer(about="A parameter is unknown or wrong.", schema=ERROR), **_WRITES, 404: _NONE,
        },
    ),
)  # fmt: skip

__all__ = ["SLOTS", "SOURCE_ROUTES"]
