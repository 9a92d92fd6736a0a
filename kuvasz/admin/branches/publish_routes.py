"""The route by which main comes to show branches. Pure."""

from __future__ import annotations

from typing import Final

from kuvasz.admin.api.route import ERROR, TOKEN_ANSWERS, Body, BodyField, FieldKind, Route, RouteAnswer
from kuvasz.config.model import Role

PUBLISH_ROUTES: Final = (
    Route(
        name="publish",
        method="POST",
        path="/api/publish",
        summary="Have main show what branches have",
        about="Tables that are written to another branch than main, one after another: each at its newest snapshot,"
        " or at that of a cut. One that cannot be published is told with its error, and is as it was.",
        body=Body(
            fields=(
                BodyField(
                    name="table", kind=FieldKind.TEXT, example="shop.*",
                    about="Only these, by their names at the source or in the lake: `*` stands for any text.",
                ),
                BodyField(
                    name="branch", kind=FieldKind.TEXT, about="Only those that the map has on this one.",
                    example="staging",
                ),
                BodyField(
                    name="cut", kind=FieldKind.TEXT, example="release",
                    about="Not the newest snapshots, but those that this cut has tagged.",
                ),
                BodyField(
                    name="dry_run", kind=FieldKind.SWITCH, about="Change nothing, and say what would be.",
                    example=True,
                ),
                BodyField(
                    name="force", kind=FieldKind.SWITCH, example=False,
                    about="Also tables of which a source is in error, or not copied yet.",
                ),
                BodyField(name="by", kind=FieldKind.TEXT, about="Who asks, for the log.", example="ana@ops-1"),
            ),
        ),
        role=Role.OPERATOR,
        answers={
            200: RouteAnswer(
                about="What main shows.", schema={"$ref": "#/components/schemas/PublishedTables"}
            ),
            400: RouteAnswer(about="The body is not as described.", schema=ERROR),
            **TOKEN_ANSWERS,
            404: RouteAnswer(about="The map has no such table.", schema=ERROR),
        },
    ),
)  # fmt: skip

__all__ = ["PUBLISH_ROUTES"]
