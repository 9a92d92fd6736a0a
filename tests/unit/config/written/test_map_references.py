from __future__ import annotations

from typing import Any

import pytest

from kuvasz.config.written.map_references import refuse_new
from kuvasz.errors import ConfigError


def a_map(*urls: str, **more: Any) -> dict[str, Any]:
    return {"databases": [{"urls": [{"url": one} for one in urls]}]} | more


KNOWN = a_map("postgresql://repl:${PW}@eu1/shop")


@pytest.mark.parametrize(
    "wanted",
    [
        KNOWN,
        a_map(),
        a_map("postgresql://us1/shop", "postgresql://repl:${PW}@eu1/shop"),  # at another number of the list
        a_map("postgresql://repl:$${PW}@us1/shop"),  # it means itself
    ],
)
def test_what_is_there_may_stay_move_and_leave(wanted: dict[str, Any]) -> None:
    refuse_new(KNOWN, wanted)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        (a_map("postgresql://repl:${PW}@elsewhere/shop"), "databases.urls.url"),
        (a_map("postgresql://repl:$${x}${exec:id}@eu1/shop"), "databases.urls.url"),
        (KNOWN | {"lake": {"uri": "postgresql://repl:${PW}@eu1/shop"}}, "lake.uri"),
        (KNOWN | {"lake": {"properties": {"${HOME}": 1}}}, "lake.properties"),
    ],
)
def test_what_is_new_is_refused_with_its_place(wanted: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=f"^{place} has a reference that the map has not: ") as refused:
        refuse_new(KNOWN, wanted)
    assert "kuvasz map import" in str(refused.value)
