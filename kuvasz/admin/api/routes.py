"""The routes of the HTTP API: the one table of them. Pure."""

from __future__ import annotations

from typing import Final

from kuvasz.admin.api.map_routes import MAP_ROUTES
from kuvasz.admin.api.route import ERROR, TOKEN_ANSWERS, Body, BodyField, FieldKind, Route, RouteAnswer
from kuvasz.admin.api.shapes import ref
from kuvasz.admin.branches.publish_routes import PUBLISH_ROUTES
from kuvasz.admin.entries.entry_routes import ENTRY_ROUTES
from kuvasz.admin.erasures.erasure_routes import ERASURE_ROUTES
from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.admin.pages.page_routes import PAGE_ROUTES
from kuvasz.admin.sources.source_routes import SOURCE_ROUTES
from kuvasz.config.model import Role

_BY: Final = BodyField(
    name="by", kind=FieldKind.TEXT, about="Who asks, for the log; the address of the client otherwise.",
    example="ann@laptop",
)  # fmt: skip

_TABLES: Final = Body(
    fields=(
        BodyField(
            name="table",
            kind=FieldKind.TEXT,
            about="The table's name at the source or in the lake; all tables of the source otherwise.",
            example="shop.items",
        ),
        BodyField(
            name="sid",
            kind=FieldKind.TEXT,
            about="The source's sid or name; all sources of the table otherwise. `*` stands for any text.",
            example="eu",
        ),
        BodyField(
            name="database",
            kind=FieldKind.TEXT,
            about="Only of this group of the map; `*` stands for any text.",
            example="shop",
        ),
        _BY,
    ),
    one_of=("table", "sid"),
)

#: What any route may answer that reads a body.
_REFUSED: Final = {
    400: RouteAnswer(about="The body is no such object.", schema=ERROR),
    **TOKEN_ANSWERS,
}


def _verb(name: str, summary: str, about: str, why_not: str) -> Route:
    """Return the route of a verb for tables."""
    idle = RouteAnswer(about=f"There is nothing to be done: {why_not}.", schema=ERROR)
    return Route(
        name=name,
        method="POST",
        path=f"/api/{name}",
        summary=summary,
        about=f"{about} The answer comes when it is begun; what comes of it is in the tables' states.",
        body=_TABLES,
        role=Role.OPERATOR,
        answers={
            202: RouteAnswer(about="It is begun, for these tables.", schema=ref("Done")),
            **_REFUSED,
            404: RouteAnswer(about="The map has no such table.", schema=ERROR),
            **({409: idle} if why_not else {}),
        },
    )


ROUTES: Final = (
    Route(
        name="livez",
        method="GET",
        path="/livez",
        summary="Whether it lives",
        about="For a liveness probe: where it says no, a new start may help.",
        answers={
            200: RouteAnswer(about="It lives.", schema=ref("Verdict")),
            503: RouteAnswer(
                about="Nothing came from any source for 300 s (while kuvasz listens: not while `pipeline.memory` is"
                " full), or changes wait and nothing was committed for 300 s.",
                schema=ref("Verdict"),
            ),
        },
    ),
    Route(
        name="readyz",
        method="GET",
        path="/readyz",
        summary="Whether all tables are there",
        about="For a readiness probe. Give it time for the initial copy.",
        answers={
            200: RouteAnswer(
                about="Every table is streaming, paused, or in an error of its own that is shown.",
                schema=ref("Verdict"),
            ),
            503: RouteAnswer(
                about="Some tables are not there yet; or sources in error keep tables from it, or wait for a person.",
                schema=ref("Verdict"),
            ),
        },
    ),
    Route(
        name="status",
        method="GET",
        path="/status",
        summary="Sources and tables",
        about="Sources with state, error, positions, lag and slot; their tables with state, error, rows, copy"
        " progress, commits, and how far each is valid. It is made at most once a second. A table's error that may"
        " quote a row has its message only for who brings a token, as `kuvasz status` does.",
        shows_more=True,
        answers={200: RouteAnswer(about="All of it, at one moment.", schema=ref("Status"))},
    ),
    Route(
        name="metrics",
        method="GET",
        path="/metrics",
        summary="Metrics for Prometheus",
        about="All that docs/metrics.md lists. It is made at most once a second.",
        answers={
            200: RouteAnswer(
                about="All metrics, in Prometheus's text format.", schema={"type": "string"}, media="text/plain"
            )
        },
    ),
    Route(
        name="support",
        method="GET",
        path="/api/support",
        summary="What a bug report needs",
        about="For `kuvasz support`. It quotes no row, whoever asks.",
        role=Role.VIEWER,
        answers={
            200: RouteAnswer(about="Status, stacks, and the last events but for commits.", schema=ref("Support")),
            401: _REFUSED[401],
            403: _REFUSED[403],
        },
    ),
    _verb(
        "pause",
        "Have tables stay where they are",
        "Over restarts too, while the others go on. Their changes are parked.",
        "it is paused already",
    ),
    _verb(
        "resume", "Let paused tables follow again", "From where they are.", "it is not paused"
    ),
    _verb(
        "retry",
        "Try tables again that are in error",
        "After the cause was mended.",
        "it is not in error",
    ),
    _verb(
        "resync",
        "Copy tables again",
        "Beside the stream: what the lake has of them stays, as old as it is, until one commit replaces it.",
        "",
    ),
    Route(
        name="maintain",
        method="POST",
        path="/api/maintain",
        summary="Look after tables now",
        about="Merges files, expires snapshots and removes orphans. The answer comes when it is done, however long"
        " that takes.",
        body=Body(
            fields=(
                BodyField(
                    name="targets", kind=FieldKind.TEXTS, about="Tables in the lake.", example=["shop.items"],
                    is_required=True,
                ),
                BodyField(name="full", kind=FieldKind.SWITCH, about="Leave no delete file.", example=False),
                _BY,
            ),
        ),
        role=Role.OPERATOR,
        answers={
            200: RouteAnswer(about="What the tables look like now.", schema=ref("Maintained")),
            **_REFUSED,
            404: RouteAnswer(about="The map has no such target.", schema=ERROR),
        },
    ),
    Route(
        name="cut",
        method="POST",
        path="/api/cut",
        summary="Tag all tables at one moment",
        about="Each table is tagged at a snapshot that shows everything before one LSN of each source, and nothing"
        " else. The answer comes when it is there.",
        body=Body(
            fields=(
                BodyField(
                    name="name", kind=FieldKind.TEXT, about="The tags are called `cut_` and this; else by the time.",
                    example="month-end",
                ),
                BodyField(
                    name="database", kind=FieldKind.TEXT, about="Of this group of the map alone.", example="shop"
                ),
                BodyField(
                    name="keep", kind=FieldKind.TEXT, about="For how long it is kept, a day otherwise.", example="35d"
                ),
                _BY,
            ),
        ),
        role=Role.OPERATOR,
        answers={
            200: RouteAnswer(about="It is made.", schema=ref("Cut")),
            **_REFUSED,
            404: RouteAnswer(about="The map has no such group.", schema=ERROR),
            409: RouteAnswer(
                about="A table does not stream, there is a cut of this name, or it took too long: nothing is tagged.",
                schema=ERROR,
            ),
        },
    ),
    Route(
        name="verify",
        method="POST",
        path="/api/verify",
        summary="Compare sources and lake row by row",
        about="By a process of its own, with a Spark of its own, one at a time. The answer comes when it is done,"
        " however long that takes; who gives up before ends it. It names keys of rows that differ, as `kuvasz verify"
        " --json` does.",
        body=Body(
            fields=(
                *_TABLES.fields[:2],
                BodyField(name="fix", kind=FieldKind.SWITCH, about="Mend what differs.", example=False),
                _BY,
            ),
        ),
        role=Role.OPERATOR,
        answers={
            200: RouteAnswer(about="What was found, also where it differs.", schema=ref("Verified")),
            **_REFUSED,
            409: RouteAnswer(
                about="Another one is under way, the map has no such table, or no report came of it.", schema=ERROR
            ),
        },
    ),
    Route(
        name="reload",
        method="POST",
        path="/api/map/reload",
        summary="Go by what the map has now",
        about="Its file is read again and checked as a whole, and what differs is put into use, source by source. The"
        " answer comes when it is begun.",
        body=Body(
            fields=(
                BodyField(
                    name="dry_run",
                    kind=FieldKind.SWITCH,
                    about="Change nothing, and say what would be.",
                    example=True,
                ),
                BodyField(
                    name="drop_removed",
                    kind=FieldKind.SWITCH,
                    about="Whether slots and publications of sources that leave are dropped; else `map.drop_removed`"
                    " says so.",
                    example=True,
                ),
                _BY,
            ),
        ),
        role=Role.ADMIN,
        answers={
            200: RouteAnswer(about="What would be otherwise.", schema=ref("MapDifference")),
            202: RouteAnswer(about="What is otherwise, and put into use.", schema=ref("MapDifference")),
            **_REFUSED,
            409: RouteAnswer(
                about="The map is faulty or cannot follow, or the last change is still under way: nothing is"
                " changed.",
                schema=ERROR,
            ),
            500: RouteAnswer(about="The lake does not answer: nothing is changed.", schema=ERROR),
        },
    ),
    *MAP_ROUTES,
    *PAGE_ROUTES,
    *SOURCE_ROUTES,
    *ERASURE_ROUTES,
    *ENTRY_ROUTES,
    *PUBLISH_ROUTES,
    *LOOK_ROUTES,
    Route(
        name="openapi",
        method="GET",
        path="/api/openapi.json",
        summary="This API as OpenAPI 3.1",
        about="For what makes clients, and for editors.",
        answers={200: RouteAnswer(about="The document.", schema={"type": "object"})},
    ),
    Route(
        name="docs",
        method="GET",
        path="/api/docs",
        summary="This API as a page",
        about="Nothing in it is loaded from elsewhere.",
        answers={200: RouteAnswer(about="The page.", schema={"type": "string"}, media="text/html")},
    ),
)  # fmt: skip

__all__ = ["ROUTES"]
