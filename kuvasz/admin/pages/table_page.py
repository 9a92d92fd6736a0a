"""The page of one table of the lake: its files, and how it stands with each of its sources. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kuvasz.admin.pages import figures, standing
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, button, document, element, joined, table, tiles
from kuvasz.admin.pages.standing import Told


def table_page(
    target: str, feeds: Sequence[tuple[Told, Told]], upkeep: Told | None, path: str, wanted: ListSelection
) -> str:
    """Return the page.

    Args:
        target: The table.
        feeds: Each source with its table, as ``/status`` has them.
        upkeep: The entry of `maintenance` of ``/status``; None if its files were not looked at.
        path: The path of the page.
        wanted: Which sources, and which part of them.
    """
    maintain = button("maintain", f"maintain {target}", json.dumps({"targets": [target]}))
    head = element("header", element("h1", target), standing.states(table for _, table in feeds), maintain)
    return document(f"{target}: kuvasz", head, _files(upkeep), element("main", _feeds(feeds, path, wanted)))


def _files(upkeep: Told | None) -> Markup:
    if upkeep is None:
        return element("p", "its files were not looked at yet", class_="hint")
    return joined(
        [
            tiles(
                [
                    ("files", figures.count(upkeep["files"])),
                    ("size", figures.size(upkeep["bytes"])),
                    ("rows in them", figures.count(upkeep["rows"])),
                    ("dead rows", f"{upkeep['dead_share']:.0%}"),
                    ("files with deletes", figures.count(upkeep["delete_files"])),
                    ("snapshots", figures.count(upkeep["snapshots"])),
                    ("last written anew", figures.moment(upkeep["last_at"])),
                    ("next look", figures.moment(upkeep["next_at"])),
                ]
            ),
            standing.error(upkeep["error"]),
        ]
    )


def _feeds(feeds: Sequence[tuple[Told, Told]], path: str, wanted: ListSelection) -> Markup:
    found = [(source, one) for source, one in feeds if wanted.has(source["source"], one["table"], one["tenant"])]
    found.sort(key=lambda pair: (standing.table_badness(pair[1])[:3], standing.badness(pair[0])))
    listing = ListPart(path, found, wanted)
    rows = [
        (
            standing.source_link(source["source"]), element("code", one["table"]), standing.state(one["state"]),
            standing.progress(one), standing.lag(source), figures.moment(one["valid_through"]),
            standing.differing(one), standing.error(one["error"]), standing.buttons(source["source"], one),
        )
        for source, one in listing.shown
    ]  # fmt: skip
    head = ("source", "table", "state", "changes", "lag", "valid through", "compared", "what is wrong", "")
    whole = table("sources of the table", head, rows, frozenset({3, 4}))
    return joined([element("h2", "Sources"), listing.bar("sources"), whole])


__all__ = ["table_page"]
