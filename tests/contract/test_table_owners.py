"""What every record of whose tables are owes: see `kuvasz.state.lakes.ports`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken, TableTaken
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.lakes.memory import MemoryTableOwners
from kuvasz.state.lakes.ports import LakeTablePlace, TableOwners
from tests.support.postgres import Database

Ask = Callable[[str | None], TableOwners]

ITEMS = LakeTablePlace(target="shop.items", uuid="1", place="s3://lake/shop/items")


@pytest.fixture(params=["memory", pytest.param("coordinator", marks=pytest.mark.postgres)])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    """Return what gives the record as a group has it."""
    if request.param == "memory":
        known: dict[tuple[str | None, str], LakeTablePlace] = {}
        yield lambda group: MemoryTableOwners(group, known)
        return
    url = request.getfixturevalue("database").url
    stores = {
        group: CoordinatorStore(lambda: url, "tests", tmp_path / str(group), 30.0, group)
        for group in (None, "blue", "green")
    }
    for store in stores.values():
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
    yield lambda group: stores[group].table_owners
    for store in stores.values():
        store._database.close()


def test_a_table_is_one_groups_alone(ask: Ask) -> None:
    assert ask("blue").taken([ITEMS]) is None, "nothing is known of any"
    first, blue, green = ask(None), ask("blue"), ask("green")
    for _ in range(2):  # as another process of the first one, too
        first.claim(ITEMS)
        ask(None).claim(ITEMS)
    assert first.taken([ITEMS]) is None
    with pytest.raises(TableTaken) as caught:
        blue.claim(ITEMS)
    assert "table shop.items: its lake is that of the processes without a group" in caught.value.message
    assert "a lake of its own" in str(caught.value.hint)
    # Nor do two later ones have one lake, whatever each of them calls it.
    mine = LakeTablePlace(target="shop.items", uuid="2", place="s3://blue/shop/items")
    blue.claim(mine)
    with pytest.raises(TableTaken, match=r"that of group blue, whose table shop\.items") as caught:
        green.claim(LakeTablePlace(target="other.things", uuid="2", place="s3://elsewhere/items"))
    assert "kuvasz cluster retire blue" in str(caught.value.hint)
    with pytest.raises(TableTaken):
        first.claim(LakeTablePlace(target="shop.more", uuid="2", place="s3://blue/shop/items"))
    assert green.taken([LakeTablePlace(target="a.b", uuid="9", place="s3://green/a/b"), mine]) is not None


@pytest.mark.parametrize(
    "place", ["s3://lake/shop/items", "s3://lake/shop", "s3://lake", "s3://lake/shop/items/data"]
)  # fmt: skip
def test_no_files_of_one_lie_among_those_of_another(ask: Ask, place: str) -> None:
    ask(None).claim(ITEMS)
    for uuid in (None, "3"):
        with pytest.raises(TableTaken):
            ask("blue").claim(LakeTablePlace(target="shop.items", uuid=uuid, place=place))


@pytest.mark.parametrize(
    "place", ["s3://lake/shop/items2", "s3://lake/shop/item", "s3://lak", "gs://lake/shop", None]
)
def test_what_only_begins_alike_is_another_place(ask: Ask, place: str | None) -> None:
    ask(None).claim(ITEMS)
    blue = ask("blue")
    blue.claim(LakeTablePlace(target="shop.items", place=place))
    blue.claim(LakeTablePlace(target="shop.items", uuid="3", place=place))


def test_a_table_that_is_made_anew_takes_the_place_of_the_one_before(ask: Ask) -> None:
    ask(None).claim(ITEMS)
    ask(None).claim(LakeTablePlace(target="shop.items", uuid="4", place="s3://moved/shop/items"))
    ask("blue").claim(ITEMS)
    assert ask(None).taken([ITEMS]) is not None


@pytest.mark.postgres
def test_who_applies_no_more_claims_nothing_and_a_retired_group_has_nothing(
    database: Database, tmp_path: Path
) -> None:
    first, blue = (
        CoordinatorStore(lambda: database.url, "tests", tmp_path / str(group), 30.0, group)
        for group in (None, "blue")
    )
    for store in (first, blue):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
    first.log_index.open()
    blue.log_index.open()
    blue.table_owners.claim(ITEMS)
    blue._lease.give_back()
    with pytest.raises(StateTaken):
        blue.table_owners.claim(ITEMS)
    with pytest.raises(TableTaken):
        first.table_owners.claim(ITEMS)
    first.log_groups.retire("blue")
    first.table_owners.claim(ITEMS)
    for store in (first, blue):
        store._database.close()
