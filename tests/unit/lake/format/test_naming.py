"""Names of data files."""

from __future__ import annotations

import pytest

from kuvasz.lake.format import member, naming

PLACE = "s3://b/shop/items"

SOURCES = ["shop_eu", "shop_eu/16385"]


@pytest.mark.parametrize("source", SOURCES)
def test_files_of_a_commit_are_told_apart_by_age(source: str) -> None:
    names = [naming.fresh(PLACE, source, order) for order in (0, 9, 10, 255, 1 << 40)]
    assert names == sorted(names)
    assert len({naming.fresh(PLACE, source) for _ in range(9)}) == 9
    for name in names:
        assert name.startswith(f"{PLACE}/data/{member.prefix(source)}")
        assert (naming.tells_newest(name), naming.is_copied(name)) == (True, False)
        assert naming.is_streamed(name)
        parts = name.replace(".parquet", "-0-3.parquet")  # of one chunk in several partitions
        assert naming.tells_newest(parts)


@pytest.mark.parametrize("source", SOURCES)
def test_what_a_copy_made_says_so(source: str) -> None:
    template = naming.of_copy(PLACE, source)
    for number in ("0", "17", "17-2"):
        assert naming.is_copied(template.format(number))
        assert naming.tells_newest(template.format(number))
        assert not naming.is_streamed(template.format(number))


def test_braces_of_a_table_s_name_stay_in_the_paths_of_its_copy() -> None:
    path = naming.of_copy("s3://b/shop/${x} {}", "shop_eu").format("17-2")
    assert path.startswith("s3://b/shop/${x} {}/data/kvsz-")
    assert path.endswith("-17-2.parquet")


@pytest.mark.parametrize("source", SOURCES)
def test_a_merged_file_stands_where_the_newest_one_stood(source: str) -> None:
    copied = naming.of_copy(PLACE, source).format(1)
    older, newest = naming.fresh(PLACE, source, 3), naming.fresh(PLACE, source, 0xABC)
    merged = naming.merged(PLACE, [copied, older, newest], is_ordered=True)
    assert merged.startswith(f"{PLACE}/data/{member.prefix(source)}000000000abc-")
    assert naming.tells_newest(merged)
    assert f"{member.prefix(source)}000000000000-" in naming.merged(PLACE, [copied], is_ordered=True)


@pytest.mark.parametrize("source", SOURCES)
def test_a_merged_file_without_order_does_not_claim_one(source: str) -> None:
    mine = naming.fresh(PLACE, source, 3)
    loose = naming.merged(PLACE, [mine], is_ordered=False)
    assert loose.startswith(f"{PLACE}/data/{member.prefix(source)}")
    for name in (loose, naming.merged(PLACE, [loose, mine], is_ordered=True)):
        assert not naming.tells_newest(name)
        assert not naming.is_copied(name)
        assert not naming.is_streamed(name)


def test_files_of_other_engines_say_nothing() -> None:
    name = f"{PLACE}/data/00000-1-6f1e2f3a-0000-0000-0000-000000000000-00001.parquet"
    assert not naming.tells_newest(name)
    assert naming.merged(PLACE, [name], is_ordered=True).startswith(f"{PLACE}/data/{member.PREFIX}")
