"""The routes that change the map's entries, which are those of kuvasz-streamer. Pure."""

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
)
from kuvasz.admin.api.shapes import ref
from kuvasz.admin.entries.entry_shapes import ENTRY_SHAPES
from kuvasz.config.model import Role
from kuvasz.model import TableType

ID: Final = Parameter(
    name="id", about="Its number, which stays.", schema={"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    example="1",
    is_in_path=True,
)  # fmt: skip

_DB_ID: Final = BodyField(
    name="db_id", kind=FieldKind.NUMBER, about="The id of its group, which stays.", example=1, is_required=True
)  # fmt: skip

_NAME: Final = BodyField(name="name", kind=FieldKind.TEXT, about="Its name.", example="shop", is_required=True)

_URL: Final = (
    _DB_ID,
    BodyField(
        name="sid", kind=FieldKind.LINE, example="eu",
        about="What identifies its rows; nothing where it is the only source. That of a source with tables stays.",
    ),
    BodyField(
        name="url", kind=FieldKind.TEXT, example="postgresql://repl:secret@eu1/shop", is_required=True,
        about="`***` stands for the password that the map has, for the same user and hosts. `${…}` is refused.",
    ),
)  # fmt: skip


def _table_fields(*, is_known: bool) -> tuple[BodyField, ...]:
    return (
        _DB_ID,
        BodyField(
            name="schema", kind=FieldKind.TEXT, about="Its schema at the source.", example="public",
            is_required=is_known,
        ),
        BodyField(
            name="name", kind=FieldKind.TEXT, about="Its name at the source.", example="items", is_required=True
        ),
        BodyField(
            name="type", kind=FieldKind.TABLE_TYPE, about="What becomes of it.", example="clone", is_required=True
        ),
        BodyField(
            name="target", kind=FieldKind.TEXT, about="Its table in the lake.", example="items", is_required=True
        ),
        BodyField(
            name="partitions_regex", kind=FieldKind.LINE, example=None,
            about="Tables of the schema whose whole name matches are one target.",
        ),
    )  # fmt: skip


def _body(shape: str, fields: tuple[BodyField, ...]) -> Body:
    """Return a body that may have all else of an entry, too, as it was shown."""
    known = {field.name for field in fields}
    passed = (
        BodyField(name=name, kind=FieldKind.SHOWN, about="What was shown; it changes nothing.", example=None)
        for name in ENTRY_SHAPES[shape]["properties"]
        if name not in known
    )
    return Body(fields=(*fields, *passed))


_REFUSED: Final = {
    400: RouteAnswer(about="A field is missing, wrong or unknown, or the number is none.", schema=ERROR),
    **TOKEN_ANSWERS,
    **writing_answers(
        "The map would be faulty or cannot follow without a restart, somebody else changed its file, or the"
        " last change is still under way: nothing is changed."
    ),
}
_UNKNOWN: Final = RouteAnswer(about="There is none of this number.", schema=ERROR)
_GONE: Final = RouteAnswer(about="It is gone.", schema={"type": "null"})


def _changing(
    path: str, shape: str, one: str, new: Body, known: Body, about: tuple[str, str, str]
) -> tuple[Route, Route, Route]:
    """Return the routes that add, change and remove entries of a kind."""
    shown = RouteAnswer(about="It, as it is now.", schema=ref(shape))
    return (
        Route(
            name=f"{path}_post", method="POST", path=f"/api/{path}", summary=f"Add {one}", about=about[0], body=new,
            role=Role.ADMIN, writes_map=True, answers={200: shown, **_REFUSED},
        ),
        Route(
            name=f"{path}_put", method="PUT", path=f"/api/{path}/{{id}}", summary=f"Change {one}", about=about[1],
            body=known, role=Role.ADMIN, writes_map=True, parameters=(ID,),
            answers={200: shown, **_REFUSED, 404: _UNKNOWN},
        ),
        Route(
            name=f"{path}_delete", method="DELETE", path=f"/api/{path}/{{id}}", summary=f"Remove {one}",
            about=about[2], role=Role.ADMIN, writes_map=True, parameters=(ID,),
            answers={200: _GONE, **_REFUSED, 404: _UNKNOWN},
        ),
    )  # fmt: skip


#: What a request says of a table that the map does not have.
_WANTED: Final = (
    ID,
    Parameter(
        name="type", about="What becomes of it: clone by default.",
        schema={"type": "string", "enum": [kind.value for kind in TableType]}, example="append",
    ),
    Parameter(
        name="target", about="Its table in the lake; its own name by default.", schema={"type": "string"},
        example="fact_items",
    ),
    Parameter(
        name="partitions_regex", about="Tables of the schema whose whole name matches are one target.",
        schema={"type": "string"}, example="items_.*",
    ),
)  # fmt: skip

CHANGE_ROUTES: Final = (
    *_changing(
        "db", "Database", "a group of the map", _body("Database", (_NAME,)), _body("Database", (_NAME,)),
        (
            "It has neither urls nor tables yet.",
            "Its name; only of one that lacks urls or tables.",
            "Only one that has neither urls nor tables.",
        ),
    ),
    *_changing(
        "url", "SourceUrl", "a source of the map", _body("SourceUrl", _URL), _body("SourceUrl", _URL),
        (
            "It is replicated as soon as its group has tables.",
            "Its url; the sid, too, of one whose group has no tables.",
            "Its rows stay in the lake; of its slot `map.drop_removed` says what becomes.",
        ),
    ),
    *_changing(
        "tbl", "TableEntry", "a table of the map",
        _body("TableEntry", _table_fields(is_known=False)), _body("TableEntry", _table_fields(is_known=True)),
        (
            "It is copied from all sources of its group, and follows them.",
            "What else the map says of it stays.",
            "Its rows stay in the lake.",
        ),
    ),
    Route(
        name="url_restart", method="POST", path="/api/url/restart", summary="End all sources, and begin them again",
        about="As a restart of kuvasz does. The answer comes when it is begun.", role=Role.OPERATOR,
        answers={
            200: RouteAnswer(about="It is begun.", schema={"type": "null"}),
            401: _REFUSED[401], 403: _REFUSED[403],
            409: RouteAnswer(about="The last change of the map is still under way.", schema=ERROR),
        },
    ),
    Route(
        name="map_clone", method="POST", path="/api/map/{id}/clone", summary="Add a table that there is to the map",
        about="As `POST /api/tbl` does, by its number in `/api/map`.", role=Role.ADMIN, writes_map=True,
        parameters=_WANTED,
        answers={200: RouteAnswer(about="It, as it is now.", schema=ref("MapEntry")), **_REFUSED, 404: _UNKNOWN},
    ),
    Route(
        name="map_create", method="POST", path="/api/map/{id}/create", summary="Create the target of a table, empty",
        about="In the lake, for a table that the map does not have: `POST /api/map/{id}/clone` with the same"
        " parameters fills it. The map stays as it is.", role=Role.ADMIN, parameters=_WANTED,
        answers={
            200: RouteAnswer(about="It, with its target.", schema=ref("MapEntry")),
            400: _REFUSED[400], 401: _REFUSED[401], 403: _REFUSED[403], 404: _UNKNOWN,
            409: RouteAnswer(
                about="The map has it, the lake has such a table, or it cannot be replicated so: nothing is created.",
                schema=ERROR,
            ),
            500: RouteAnswer(about="The lake does not answer.", schema=ERROR),
        },
    ),
)  # fmt: skip

__all__ = ["CHANGE_ROUTES", "ID"]
