"""The routes of erasures. Pure."""

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
)
from kuvasz.config.model import Role

_ERASURE: Final[Schema] = {"$ref": "#/components/schemas/Erasure"}
_TEXT: Final[Schema] = {"type": "string"}

ERASURE_ROUTES: Final = (
    Route(
        name="erasure_ask", method="POST", path="/api/erasure", summary="Erase a tenant's rows, or one row, for good",
        about="As `kuvasz source erase`: rows out of all files, older snapshots and metadata. It is noted, and kuvasz"
        " stops replicating, erases, and begins again by itself; this server answers meanwhile, but for little else"
        " than how far that is.",
        role=Role.ADMIN,
        body=Body(
            fields=(
                BodyField(
                    name="sid", kind=FieldKind.TEXT, about="The tenant, by its sid; or whose row.", example="de"
                ),
                BodyField(
                    name="database", kind=FieldKind.TEXT, about="Only of this group of the map.", example="shop"
                ),
                BodyField(
                    name="table", kind=FieldKind.TEXT, about="Only a row of this table, whose key is given.",
                    example="shop.customers",
                ),
                BodyField(
                    name="key", kind=FieldKind.TEXTS, example=["4711"],
                    about="A value for each column of the row's key, in its order, or `column=value`.",
                ),
                BodyField(
                    name="with_tags", kind=FieldKind.SWITCH, example=False,
                    about="Remove tags and branches that hold older snapshots; else it fails where there are any.",
                ),
                BodyField(
                    name="with_unclear", kind=FieldKind.SWITCH, example=False,
                    about="With `key`: rejected rows as well whose keys do not tell whose they are.",
                ),
                BodyField(
                    name="sure", kind=FieldKind.SWITCH, example=True,
                    about="Do it. Without it nothing is done, and the error says what would go.",
                ),
                BodyField(
                    name="by", kind=FieldKind.TEXT, example="ann@laptop",
                    about="Who asks, for the log; the address of the client otherwise.",
                ),
            ),
            one_of=("sid", "table"),
        ),
        answers={
            202: RouteAnswer(
                about="It is noted, and begins. `GET /api/erasure/{id}` says how far it is.", schema=_ERASURE
            ),
            400: RouteAnswer(about="The body is no such object.", schema=ERROR),
            **TOKEN_ANSWERS,
            405: RouteAnswer(about="A source would leave the map, which is read-only.", schema=ERROR),
            409: RouteAnswer(
                about="Nobody is sure, there is nothing such, or this kuvasz erases by its command alone.",
                schema=ERROR,
            ),
            500: RouteAnswer(about="The lake does not answer, or nothing can be noted.", schema=ERROR),
        },
    ),
    Route(
        name="erasure_list", method="GET", path="/api/erasure", summary="Erasures that were asked for by HTTP",
        about="How far each is, without receipts. Also while rows are being erased.", role=Role.VIEWER,
        answers={
            200: RouteAnswer(about="In their order.", schema={"type": "array", "items": _ERASURE}), **TOKEN_ANSWERS,
        },
    ),
    Route(
        name="erasure_get", method="GET", path="/api/erasure/{id}", summary="An erasure, with its receipt",
        about="How far it is; once it is done, the receipt that lies in the state folder too. Also while rows are"
        " being erased.",
        role=Role.VIEWER,
        parameters=(
            Parameter(
                name="id", about="As the request for it was answered.", schema=_TEXT,
                example="20261127T093000-5f0c2a91", is_in_path=True,
            ),
        ),
        answers={
            200: RouteAnswer(about="It.", schema=_ERASURE), **TOKEN_ANSWERS,
            404: RouteAnswer(about="There is none of this id.", schema=ERROR),
        },
    ),
)  # fmt: skip

__all__ = ["ERASURE_ROUTES"]
