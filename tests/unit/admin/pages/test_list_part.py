"""Parts of a long list."""

from __future__ import annotations

import pytest

from kuvasz.admin.pages.list_part import ListPart, ListSelection
from tests.support.seen_page import SeenPage


@pytest.mark.parametrize(
    ("number", "shown", "links"),
    [(1, (0, 100), ["/x?q=a+b&page=2"]), (2, (100, 200), ["/x?q=a+b&page=1", "/x?q=a+b&page=3"]),
     (3, (200, 250), ["/x?q=a+b&page=2"]), (99, (200, 250), ["/x?q=a+b&page=2"])],
)  # fmt: skip
def test_a_list_is_shown_a_part_at_a_time(number: int, shown: tuple[int, int], links: list[str]) -> None:
    listing = ListPart("/x", list(range(250)), ListSelection(text="a b", number=number))
    assert listing.shown == list(range(*shown))
    seen = SeenPage(listing.bar("sources"))
    assert seen.links == links
    assert f"{shown[0] + 1} to {shown[1]} of 250" in seen.text


def test_nothing_is_a_part_as_well() -> None:
    listing = ListPart("/x", [], ListSelection(text="'\"><b>"))
    assert (listing.shown, SeenPage(listing.bar("sources")).links) == ([], [])


def test_names_are_found_in_whatever_case() -> None:
    assert ListSelection(text="SHOP").has(None, "my_shop_eu")
    assert not ListSelection(text="x").has(None, "shop")
    assert ListSelection().has("whatever")


def test_a_short_list_is_not_looked_through() -> None:
    assert ListPart("/x", list(range(9)), ListSelection()).bar("sources") == ""


def test_two_lists_of_a_page_keep_each_others_parts() -> None:
    wanted = ListSelection(number=1, names=("table", "tables"), others={"q": "eu", "page": "3"})
    seen = SeenPage(ListPart("/", list(range(150)), wanted).bar("tables"))
    assert seen.links == ["/?table=&tables=2&q=eu&page=3"]
