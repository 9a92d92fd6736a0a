"""What is done with tables, asked for by a page: the question with its token, and what came of it.

They work without a script: a form is sent to the route of the API that does it (`kuvasz.admin.api.form`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin.api.form import TOKEN
from kuvasz.admin.pages import standing
from kuvasz.admin.pages.frame import document, heading
from kuvasz.admin.pages.markup import Markup, element, escaped, link

if TYPE_CHECKING:
    from kuvasz.admin.api.refusal import RequestRefused
    from kuvasz.admin.api.route import Route

#: Fields that say what is meant.
_MEANT: Final = ("table", "sid", "targets")

#: Whose token is wrong, or too weak: it is not kept.
_OTHER_TOKEN: Final = frozenset({401, 403})

#: Characters of an answer that are shown.
_LONGEST: Final = 4000


def question_page(route: Route, given: Mapping[str, Sequence[str]]) -> str:
    """Return the page that asks whether it is meant, and for a token.

    Args:
        route: What does it.
        given: Its fields.
    """
    verb = verb_of(route)
    form = element(
        "form",
        *(_hidden(name, value) for name in _MEANT for value in given.get(name, ())),
        element("p", f"{route.summary}. {route.about}"),
        element(
            "label", "token ",
            Markup(f'<input id="token" name="{TOKEN}" type="password" autocomplete="off" required>'),
        ),
        element(
            "p", "one of ", element("code", "server.tokens"), " of the map, or that of ",
            element("code", "server.json"), " in the state folder", class_="quiet",
        ),
        element("div", element("button", verb, type="submit", class_="strong"), *_back(given), class_="acts"),
        method="post", action=route.path, class_="card",
    )  # fmt: skip
    return document(f"{verb}: kuvasz", _head(route, given), form)


def done_page(route: Route, given: Mapping[str, Sequence[str]], answer: str) -> str:
    """Return the page that says that it is done, or has begun.

    Args:
        route: What did it.
        given: Its fields.
        answer: What that answered.
    """
    told = element(
        "div", element("p", element("span", "done", class_="state good"), role="status"),
        element("pre", _indented(answer)), element("div", *_back(given), class_="acts"), class_="card",
    )  # fmt: skip
    return document(f"{verb_of(route)}: done: kuvasz", _head(route, given), told)


def refused_page(route: Route, given: Mapping[str, Sequence[str]], refused: RequestRefused) -> str:
    """Return the page that says why it was not done.

    Args:
        route: What was to do it.
        given: Its fields.
        refused: Why not.
    """
    said = standing.error({"message": refused.message, "hint": refused.hint})
    told = element(
        "div", element("p", element("span", "not done", class_="state bad"), role="alert"), said,
        element("div", _again(route, given), *_back(given), class_="acts"), class_="card",
        data_forget=refused.status in _OTHER_TOKEN,
    )  # fmt: skip
    return document(f"{verb_of(route)}: not done: kuvasz", _head(route, given), told)


def verb_of(route: Route) -> str:
    """Return what a route does, as pages call it."""
    return route.path.rpartition("/")[2]


def _head(route: Route, given: Mapping[str, Sequence[str]]) -> Markup:
    what = " of ".join(value for name in _MEANT for value in given.get(name, ()))
    return heading(f"{verb_of(route)} {what}", within=link("/", "fleet"))


def _again(route: Route, given: Mapping[str, Sequence[str]]) -> Markup:
    fields = {name: value for name in _MEANT for value in given.get(name, ())}
    return standing.actions([(verb_of(route), "again", fields)])


def _back(given: Mapping[str, Sequence[str]]) -> list[Markup]:
    """Return ways back to what is meant."""
    tables = [*given.get("table", ()), *given.get("targets", ())]
    found = [("source", one) for one in given.get("sid", ())] + [("table", one) for one in tables]
    return [link(standing.path_of(kind, name), f"back to {name}", class_="do") for kind, name in found]


def _hidden(name: str, value: str) -> Markup:
    return Markup(f'<input type="hidden" name="{escaped(name)}" value="{escaped(value)}">')


def _indented(answer: str) -> str:
    try:
        told = json.dumps(json.loads(answer), indent=2, ensure_ascii=False)
    except ValueError:
        told = answer
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}\n…"


__all__ = ["done_page", "question_page", "refused_page", "verb_of"]
