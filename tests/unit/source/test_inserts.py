from __future__ import annotations

from kuvasz.source import inserts


def test_the_second_publication_is_named_after_the_first() -> None:
    assert inserts.object_name("kuvasz_shop_eu") == "kuvasz_shop_eu_ins"


def test_a_long_name_is_shortened_and_stays_apart() -> None:
    names = {inserts.object_name("kuvasz_" + "x" * 55 + end) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 63 and name.endswith("_ins") for name in names)
