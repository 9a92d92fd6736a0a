"""The routes of the pages for people. Pure."""

from __future__ import annotations

from typing import Final

from kuvasz.admin.api.route import ERROR, Parameter, Route, RouteAnswer

_PAGE: Final = RouteAnswer(about="The page.", schema={"type": "string"}, media="text/html")
_REFUSED: Final = {400: RouteAnswer(about="What is asked for as `page` is no number.", schema=ERROR)}
_GONE: Final = {404: RouteAnswer(about="The map has none of this name.", schema=ERROR)}

_LIST: Final = (
    Parameter(name="q", about="Only what has this text in its name.", schema={"type": "string"}, example="eu"),
    Parameter(name="page", about="Which hundred of the list.", schema={"type": "integer", "minimum": 1,
              "maximum": 999_999_999}, example="2"),
)  # fmt: skip

_TABLES: Final = (
    Parameter(name="table", about="Only tables of the lake with this text in their names.", schema={"type": "string"},
              example="items"),
    Parameter(name="tables", about="Which hundred of the lake's tables.", schema={"type": "integer", "minimum": 1,
              "maximum": 999_999_999}, example="2"),
)  # fmt: skip


def _named(about: str, example: str) -> Parameter:
    return Parameter(name="name", about=about, schema={"type": "string"}, example=example, is_in_path=True)


#: They need no token, and quote no row. What changes something is asked of the API by a form, with a token.
PAGE_ROUTES: Final = (
    Route(
        name="fleet_page", method="GET", path="/", summary="All of it as a page for people",
        about="Sources with the worst first, and the lake's tables. Nothing in it is loaded from elsewhere.",
        parameters=(*_LIST, *_TABLES), answers={200: _PAGE, **_REFUSED},
    ),
    Route(
        name="source_page", method="GET", path="/source/{name}", summary="A source as a page for people",
        about="Its tables, its lag of the last hour, and what happened to it.",
        parameters=(_named("What kuvasz calls it.", "shop_eu"), *_LIST), answers={200: _PAGE, **_REFUSED, **_GONE},
    ),
    Route(
        name="table_page", method="GET", path="/table/{name}", summary="A table of the lake as a page for people",
        about="Its files, how it stands with each of its sources, and its columns there and here.",
        parameters=(
            _named("Its name in the lake, with its namespace.", "shop.items"), *_LIST,
            Parameter(name="source", about="Whose columns are shown; else those of the first source.",
                      schema={"type": "string"}, example="shop_eu"),
        ),
        answers={200: _PAGE, **_REFUSED, **_GONE},
    ),
    Route(
        name="action_page", method="GET", path="/do/{verb}", summary="What is done with a table, asked by a page",
        about="It asks for a token, and its form is sent to the route that does it, as"
        " `application/x-www-form-urlencoded`: the fields of the body, and `token`. That answers by a page, too.",
        parameters=(
            Parameter(name="verb", about="What is done.", schema={"type": "string"}, example="pause",
                      is_in_path=True),
            Parameter(name="table", about="As in the body.", schema={"type": "string"}, example="shop.items"),
            Parameter(name="sid", about="As in the body.", schema={"type": "string"}, example="shop_eu"),
            Parameter(name="targets", about="As in the body.", schema={"type": "string"}, example="shop.items"),
        ),
        answers={200: _PAGE, 404: RouteAnswer(about="No page does that.", schema=ERROR)},
    ),
)  # fmt: skip

__all__ = ["PAGE_ROUTES"]
