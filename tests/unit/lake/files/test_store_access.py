"""What a catalog lends for a table is found by the table's place, renewed in time, and shown to nobody."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.config.model import CatalogType, LakeConfig
from kuvasz.config.secrets import SecretFile, SecretText
from kuvasz.lake.files import store_access
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.store_access import Lease, LeaseFailures, StoreAccess, lease_of

ITEMS, ORDERS = "s3://lake/wh/shop/items", "s3://lake/wh/shop/orders"
FIXED = {"s3.endpoint": "http://localhost:9000", "client.region": "eu"}


def lease(location: str, lent: str = "geheim", renew_in_s: float = 60.0) -> Lease:
    properties = {"s3.session-token": lent}
    return Lease(table="shop.items", location=location, properties=properties, renew_at=time.time() + renew_in_s)


def access(*leases: Lease) -> StoreAccess:
    found = StoreAccess(FIXED, {"type": "rest", "uri": "http://localhost:1"})
    for one in leases:
        found.take(one)
    return found


def test_a_lease_is_renewed_at_half_of_its_life() -> None:
    end = time.time() + 100
    config = {
        "s3.session-token": "t",
        "s3.session-token-expires-at-ms": str(int(end * 1000)),
        "token": "of the catalog",
    }
    found = lease_of("shop.items", ITEMS, config)
    assert found is not None
    assert found.renew_at == pytest.approx(end - 50, abs=1)
    assert "token" not in found.properties
    assert not found.is_due


def test_one_that_tells_no_end_is_renewed_all_the_same() -> None:
    found = lease_of("shop.items", ITEMS, {"s3.session-token": "t"})
    assert found is not None
    assert 60 < found.renew_at - time.time() < 900


def test_one_that_has_ended_by_our_clock_is_not_asked_for_all_the_time() -> None:
    found = lease_of("shop.items", ITEMS, {"s3.session-token-expires-at-ms": "1000"})
    assert found is not None
    assert not found.is_due


def test_credentials_of_the_longest_prefix_win() -> None:
    credentials = [
        ("s3://lake/wh", {"s3.session-token": "wide"}), ("s3://lake/wh/shop/items", {"s3.session-token": "narrow"}),
        ("s3://other", {"s3.session-token": "other"}),
    ]  # fmt: skip
    found = lease_of("shop.items", ITEMS, {"s3.session-token": "plain", "s3.endpoint": "e"}, credentials)
    assert found is not None
    assert found.properties == {"s3.session-token": "narrow", "s3.endpoint": "e"}


def test_a_table_of_which_nothing_is_lent_has_the_maps_own() -> None:
    assert lease_of("shop.items", ITEMS, {"token": "of the catalog"}) is None


def test_each_place_has_what_is_lent_for_its_table() -> None:
    found = access(lease(ITEMS, "a"), lease(ORDERS, "b"))
    assert found.at(f"{ITEMS}/data/x.parquet") == FIXED | {"s3.session-token": "a"}
    assert found.at(ORDERS) == FIXED | {"s3.session-token": "b"}
    assert found.at(f"{ITEMS}_2/data/x.parquet") == FIXED
    assert dict(found) == FIXED


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> LeaseFailures:
    """Those of a process of its own."""
    found = LeaseFailures()
    monkeypatch.setattr(store_access, "_FAILURES", found)
    return found


def test_what_is_due_is_renewed_before_it_is_used_or_sent() -> None:
    found = access()
    renewals = 0

    def renew() -> None:
        nonlocal renewals
        renewals += 1
        found.take(lease(ITEMS, f"token {renewals}", 60.0 if renewals > 1 else -1.0))

    found.take(lease(ITEMS, "old", -1.0), renew)
    sent = pickle.loads(pickle.dumps(found))
    assert renewals == 1
    assert found.at(ITEMS)["s3.session-token"] == "token 2"
    assert found.at(ITEMS)["s3.session-token"] == "token 2"
    assert renewals == 2
    del sent


def test_what_cannot_be_renewed_is_used_as_it_is() -> None:
    def renew() -> None:
        raise OSError("no catalog")

    found = access()
    found.take(lease(ITEMS, "old", -1.0), renew)
    assert found.at(ITEMS)["s3.session-token"] == "old"


class Catalog:
    """Counts how often it is asked, and lends nothing while it is dead; `seconds` is the clock of the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.is_dead = True
        self.seconds = 100.0
        monkeypatch.setattr(store_access.time, "monotonic", lambda: self.seconds)

    def renewer(self, found: StoreAccess, location: str) -> Callable[[], None]:
        def renew() -> None:
            self.asked += 1
            if self.is_dead:
                raise OSError("connection refused")
            found.take(lease(location, "new"))

        return renew


def test_a_dead_catalog_is_asked_now_and_then_by_all_jobs_and_files_of_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(monkeypatch)

    def job() -> str:
        """A job comes with an access of its own, and looks at many files."""
        found = access()
        found.take(lease(ITEMS, "old", -1.0), catalog.renewer(found, ITEMS))
        pickle.dumps(found)
        return {found.at(f"{ITEMS}/{file}")["s3.session-token"] for file in range(50)}.pop()

    assert {job() for _ in range(10)} == {"old"}
    assert catalog.asked == 1
    for _ in range(60):
        catalog.seconds += 1.0
        job()
    assert 7 <= catalog.asked <= 12, "after 1, 2, 4, 8 s, and then every 10"
    catalog.is_dead = False
    catalog.seconds += 10.0
    assert job() == "new"
    catalog.is_dead, asked = True, catalog.asked
    job()
    assert catalog.asked == asked + 1, "one that went well is not held against the next"


def test_a_table_that_is_refused_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, found = Catalog(monkeypatch), access()
    found.take(lease(ITEMS, "old", -1.0), catalog.renewer(found, ITEMS))
    found.at(ITEMS)
    catalog.is_dead = False
    found.take(lease(ORDERS, "old", -1.0), catalog.renewer(found, ORDERS))
    assert found.at(ORDERS)["s3.session-token"] == "new"
    assert found.at(ITEMS)["s3.session-token"] == "old"


def test_only_what_a_job_needs_travels() -> None:
    found = access(lease(ITEMS, "first secret"), lease(ORDERS, "second secret"))
    text = pickle.dumps(store_access.of_table(found, ORDERS))
    assert b"second secret" in text
    assert b"first secret" not in text
    assert pickle.loads(text).at(ORDERS)["s3.session-token"] == "second secret"


def test_what_the_catalog_is_asked_with_travels_as_the_files_have_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    properties = {"token": "old", "header.x-iceberg-access-delegation": "vended-credentials"}
    lake = LakeConfig(
        type=CatalogType.REST, uri="http://localhost:1", warehouse="s3://lake/wh", properties=properties
    )
    found = store_access.of_lake(lake.asking({"token": SecretText(SecretFile(str(tmp_path / "token")))}))
    assert isinstance(found, StoreAccess)
    (tmp_path / "token").write_text("new")
    there = pickle.loads(pickle.dumps(found.of(ITEMS)))
    assert there.catalog == {
        "type": "rest", "uri": "http://localhost:1", "warehouse": "s3://lake/wh", **properties, "token": "new"
    }  # fmt: skip
    found.follow({"credential": "id:secret"})
    assert "token" not in found.catalog
    assert pickle.loads(pickle.dumps(found)).catalog["credential"] == "id:secret"


def test_nothing_of_it_is_shown() -> None:
    one = lease(ITEMS)
    assert "geheim" not in f"{one} {one!r} {access(one)} {access(one)!r} {access(one).of(ITEMS)!r}"


def test_a_place_without_a_lease_has_a_file_io_too(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/x"
    with file_io(access(), path).new_output(path).create() as stream:
        stream.write(b"x")


@pytest.mark.parametrize(
    ("type_", "properties", "is_asked"),
    [
        ("rest", {"header.X-Iceberg-Access-Delegation": "vended-credentials"}, True),
        ("rest", {"header.x-iceberg-access-delegation": "vended-credentials,remote-signing"}, True),
        ("rest", {"header.X-Iceberg-Access-Delegation": "remote-signing"}, False),
        ("rest", {}, False),
        ("jdbc", {"header.X-Iceberg-Access-Delegation": "vended-credentials"}, False),
    ],
)
def test_a_catalog_lends_where_it_is_asked_to(type_: str, properties: dict[str, str], is_asked: bool) -> None:
    lake = LakeConfig.model_validate({"type": type_, "uri": "http://localhost:1", "properties": properties})
    found = store_access.of_lake(lake)
    assert isinstance(found, StoreAccess) is is_asked
    assert dict(found) == properties
