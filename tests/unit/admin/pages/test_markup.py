"""Texts of others on a page."""

from __future__ import annotations

from kuvasz.admin.pages.markup import Markup, columns, element, escaped, joined, link, table, tiles
from tests.support.seen_page import SeenPage

HOSTILE = "<script>alert('1')</script>\"&"


def test_a_text_is_escaped_once_wherever_it_stands() -> None:
    inner = element("b", HOSTILE, title=HOSTILE)
    assert escaped(inner) is inner
    whole = table(HOSTILE, columns(HOSTILE), [[HOSTILE]])
    assert "<script" not in joined([inner, element("p", inner), whole])
    seen = SeenPage(joined([inner, tiles([(HOSTILE, HOSTILE)]), link(HOSTILE, HOSTILE), whole]))
    assert seen.text.split() == [*HOSTILE.split()] * 6
    assert seen.links == [HOSTILE]


def test_attributes_may_be_left_out_or_have_no_value() -> None:
    assert element("a", class_="x", data_body="{}", hidden=True, title=None, open=False) == Markup(
        '<a class="x" data-body="{}" hidden></a>'
    )


def test_cells_know_their_columns_and_whether_they_say_something() -> None:
    head = columns("name", "size", "acts", numbers=["size"], unseen="acts")
    whole = table("things", head, [["a", "–", "go"], ["b", "1 B", "go"]])
    assert '<td class="number none" role="cell" data-label="size">–</td>' in whole
    assert '<td role="cell" data-label="">go</td>' in whole
    assert '<span class="unseen">acts</span>' in whole


def test_a_column_of_which_nothing_is_known_is_left_out() -> None:
    head = columns("name", "size", "error")
    assert SeenPage(table("things", head, [["a", "–", ""], ["b", "–", Markup()]])).text.split() == ["name", "a", "b"]
    assert SeenPage(table("things", head, [])).text.split() == ["name", "size", "error"]
