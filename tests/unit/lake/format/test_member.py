from __future__ import annotations

import pytest

from kuvasz.lake.format import member


@pytest.mark.parametrize(
    ("source", "prefix", "found"),
    [("shop_eu", "kvsz-", None), ("shop_eu/16385", "kvsz-m16385-", "16385")],
)
@pytest.mark.parametrize("rest", ["0123456789ab-0a.parquet", "0a-1-2.parquet", "0a.parquet"])
def test_a_files_name_says_whose_rows_it_holds(source: str, prefix: str, found: str | None, rest: str) -> None:
    assert member.prefix(source) == prefix
    path = f"s3://b/kvsz-m7-x/data/{prefix}{rest}"
    assert member.in_path(path) == found
    assert member.prefix_like(path) == prefix


def test_members_hash_their_keys_apart() -> None:
    seed = bytes(range(16))
    seeds = [member.seed(seed, one) for one in (None, "", "1", "2")]
    assert seeds[0] == seeds[1] == seed
    assert len(set(seeds)) == 3
    assert {len(one) for one in seeds} == {16}
