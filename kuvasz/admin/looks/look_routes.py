"""The routes of the verbs that only look. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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
)
from kuvasz.config.model import Role

_TEXT: Final[Schema] = {"type": "string"}

_REFUSED: Final = {
    400: RouteAnswer(about="A parameter is unknown or wrong.", schema=ERROR),
    **TOKEN_ANSWERS,
    500: RouteAnswer(about="Lake or database do not answer.", schema=ERROR),
}

_TABLE: Final = Parameter(
    name="table", about="Only this one, by its name at the source or in the lake.", schema=_TEXT, example="shop.items"
)

_SID: Final = Parameter(name="sid", about="Only this source, by its sid or name.", schema=_TEXT, example="eu")


def _look(
    verb: str, summary: str, about: str, role: Role, schema: Schema, parameters: tuple[Parameter, ...] = (), *,
    command: str = "", refused: Mapping[int, RouteAnswer] = MappingProxyType({}),
) -> Route:  # fmt: skip
    return Route(
        name=verb, method="GET", path=f"/api/{verb}", summary=summary, role=role, parameters=parameters,
        about=f"{about} As `kuvasz {command or verb} --json`.",
        answers={200: RouteAnswer(about="What was found.", schema=schema), **_REFUSED, **refused},
    )  # fmt: skip


def _listed(*fields: str) -> Schema:
    """Return what a list of objects looks like."""
    return {"type": "array", "items": {"type": "object", "required": list(fields)}}


LOOK_ROUTES: Final = (
    _look(
        "config", "Every option with its value", "The map that runs: where each value is from, secrets hidden.",
        Role.VIEWER, _listed("path", "value", "origin"),
    ),
    _look(
        "types", "What each PostgreSQL type becomes in the lake", "The same for all maps.",
        Role.VIEWER, _listed("postgresql", "iceberg", "note"),
    ),
    _look(
        "check", "What a start would find", "Machine, lake and sources are looked at, and what mends it is said.",
        Role.OPERATOR, _listed("source", "table", "check", "ok", "severity", "value", "needed", "fix"),
        (
            Parameter(
                name="source", about="Only of these sources, by their names; may be given for several.",
                schema={"type": "array", "items": _TEXT}, example="shop_eu",
            ),
        ),
    ),
    _look(
        "plan", "What a start would do", "Sources and lake are looked at, and nothing is done.",
        Role.OPERATOR, _listed("source", "location", "slot", "is_new_slot", "statements", "tables", "is_due"),
    ),
    _look(
        "asof", "Which snapshot of each table shows a moment", "With how engines read it.", Role.VIEWER,
        {"type": "object", "required": ["time", "lsns", "tables"]},
        (
            Parameter(
                name="time", about="What had committed by then, UTC unless it says otherwise.", schema=_TEXT,
                example="2026-11-22T10:00",
            ),
            Parameter(
                name="lsn", about="What committed before; may be given for several sources.",
                schema={"type": "array", "items": _TEXT}, example="eu:0/16B3748",
            ),
            Parameter(name="table", about="Only this one.", schema=_TEXT, example="shop.items"),
        ),
    ),
    _look(
        "drift", "Sources and tenants unlike the rest of their group", "All sources of the groups are asked.",
        Role.OPERATOR, _listed("database", "source", "sid", "table", "what", "found", "usual"),
        (
            Parameter(
                name="database", about="Only of these groups: `*` stands for any text.", schema=_TEXT, example="shop*"
            ),
            Parameter(
                name="sid", about="Only of these sids, names or tenants: `*` stands for any text.", schema=_TEXT,
                example="de_*",
            ),
        ),
        command="source drift",
    ),
    _look(
        "notes", "What is noted of each source in the lake's tables",
        "How far each is, its columns, the rule of its rows.",
        Role.VIEWER, _listed("target", "sources"), (_TABLE, _SID),
    ),
    _look(
        "wait", "Wait until the lake shows a moment",
        "The answer comes when it does, when a table does not come without a person, or when the time is up:"
        " `reached` and `stuck` say which. Without a moment it is where the WAL of each source ends now: they are"
        " asked.",
        Role.OPERATOR, {"type": "object", "required": [
            "reached", "stuck", "seconds", "through", "lsns", "silent", "tables",
        ]},
        (
            Parameter(
                name="through", about="What had committed by then, UTC unless it says otherwise.", schema=_TEXT,
                example="2026-11-22T10:00",
            ),
            Parameter(
                name="lsn", about="What committed before; may be given for several sources.",
                schema={"type": "array", "items": _TEXT}, example="eu:0/16B3748",
            ),
            _TABLE,
            _SID,
            Parameter(
                name="timeout", schema=_TEXT, example="30s",
                about="How long, a minute otherwise; `0` looks once. Proxies between may give up earlier.",
            ),
        ),
        refused={409: RouteAnswer(about="Many wait already.", schema=ERROR)},
    ),
    Route(
        name="trace", method="POST", path="/api/trace", summary="The life of a row in the lake",
        about="Each snapshot in which it came, changed, moved or went. It shows values of rows, so each request is"
        " told in the log, and no url has the key. As `kuvasz trace --json`.",
        role=Role.ADMIN,
        body=Body(
            fields=(
                BodyField(
                    name="table", kind=FieldKind.TEXT, example="shop.items", is_required=True,
                    about="The table's name at the source or in the lake.",
                ),
                BodyField(
                    name="key", kind=FieldKind.TEXTS, example=["42"], is_required=True,
                    about="A value for each column of the key, in its order, or `column=value`.",
                ),
                BodyField(
                    name="sid", kind=FieldKind.TEXT, example="eu", about="Only rows of this source, by sid or name.",
                ),
                BodyField(
                    name="at_source", kind=FieldKind.SWITCH, example=True,
                    about="Ask what the source has of it now, too.",
                ),
            ),
        ),
        answers={
            200: RouteAnswer(
                about="What was found, target by target.", schema={"type": "object", "required": ["tables"]}
            ),
            **_REFUSED,
        },
    ),
    Route(
        name="init", method="POST", path="/api/init", summary="A map of any database",
        about="The database is looked at, and nothing is written. As `kuvasz init` does.", role=Role.ADMIN,
        body=Body(
            fields=(
                BodyField(
                    name="url", kind=FieldKind.TEXT, example="postgresql://repl:secret@de1/shop", is_required=True,
                    about="Where it is; its password becomes a variable in the map. `${…}` is refused.",
                ),
                BodyField(
                    name="tables", kind=FieldKind.TEXTS, about="Only these; `*` stands for any text.",
                    example=["shop.*"],
                ),
                BodyField(
                    name="except", kind=FieldKind.TEXTS, about="None of these; `*` stands for any text.",
                    example=["audit.*"],
                ),
                BodyField(name="database", kind=FieldKind.TEXT, about="The group's name.", example="shop"),
                BodyField(name="sid", kind=FieldKind.TEXT, about="The source's id in the rows.", example="de"),
                BodyField(
                    name="patterns", kind=FieldKind.SWITCH, example=True,
                    about="Patterns in the map, which take in later tables, too.",
                ),
            ),
        ),
        answers={
            200: RouteAnswer(
                about="The map, which variables it needs, and how many tables it has.",
                schema={"type": "object", "required": ["text", "variables", "tables", "left_out"]},
            ),
            **_REFUSED,
        },
    ),
)  # fmt: skip

__all__ = ["LOOK_ROUTES"]
