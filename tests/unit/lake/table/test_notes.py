"""What is noted of sources in the properties of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import gaps, source_positions
from kuvasz.lake.table.notes import ANCHOR_PROPERTY, REWOUND_PREFIX, SET_BACK_PROPERTY, Notes
from kuvasz.model import SourcePosition
from kuvasz.ports import Gap

HERE = SourcePosition(lsn=0x1A2B, commit_lsn=0x1A00, rows=3, system_id="7361")


class Table:
    """An Iceberg table as far as its properties go."""

    name = "shop.items"

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)
        self.summary: dict[str, str] = {}  #: of the current snapshot, and of those it descends from
        self.commits = 0

    @property
    def snapshots(self) -> Table:
        return self

    def newest_of_summaries(self, name: str) -> tuple[str | None, bool]:
        return self.summary.get(name), True

    def newest_that_says(self, say: Callable[[Callable[[str], str | None]], str | None]) -> tuple[str | None, bool]:
        return say(self.summary.get), True

    def property_of(self, name: str) -> str | None:
        return self.properties.get(name)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        self.commits += 1
        merged = {**self.properties, **properties}
        self.properties = {name: text for name, text in merged.items() if text is not None}

    def remove_properties(self, names: Iterable[str]) -> None:
        self.set_properties(dict.fromkeys(names))


@pytest.fixture
def table() -> Table:
    return Table({source_positions.PREFIX + source: source_positions.render(HERE) for source in ("eu", "us")})


def test_what_is_parked_is_noted_by_source(table: Table) -> None:
    notes = Notes(table)
    notes.park("eu", "a" * 32)
    notes.park("us", "b" * 32)
    notes.park("eu", None)
    assert (notes.parked("eu"), notes.parked("us")) == (None, "b" * 32)
    assert "kuvasz.parked.us" in table.properties


def test_partitions_are_stored_when_they_change(table: Table) -> None:
    notes = Notes(table)
    assert notes.partitions("eu") is None
    notes.remember_partitions("eu", frozenset())
    assert notes.partitions("eu") == frozenset()
    notes.remember_partitions("eu", frozenset({"b", "a"}))
    notes.remember_partitions("eu", frozenset({"a", "b"}))
    assert (notes.partitions("eu"), notes.partitions("us"), table.commits) == ({"a", "b"}, None, 2)
    assert table.properties["kuvasz.partitions.eu"] == '["a", "b"]'


def test_a_position_goes_with_what_stood_beside_it(table: Table) -> None:
    notes = Notes(table)
    notes.drop_position("eu", to_repair=True)
    notes.park("eu", "a" * 32)
    notes.drop_position("eu", to_repair=False)
    assert table.properties == {source_positions.PREFIX + "us": source_positions.render(HERE)}


def test_the_rule_of_its_rows_stays_as_long_as_they_may_stay(table: Table) -> None:
    notes, rule = Notes(table), "kuvasz.rule.eu"
    table.properties[rule] = "-.-.-.-.error"
    notes.drop_position("eu", to_repair=True)
    assert rule in table.properties
    notes.drop_position("eu", to_repair=False)
    assert rule not in table.properties


@pytest.mark.parametrize(("to_repair", "has_position"), [(False, True), (True, True), (True, False)])
def test_of_another_source_columns_and_partitions_go_in_the_same_commit(
    table: Table, to_repair: bool, has_position: bool
) -> None:
    table.properties |= {"kuvasz.columns.eu": "{}", "kuvasz.partitions.eu": "[]"}
    if not has_position:
        del table.properties[source_positions.PREFIX + "eu"]
    Notes(table).drop_position("eu", to_repair=to_repair, is_gone=True)
    dropped = {source_positions.PREFIX + "eu", "kuvasz.columns.eu", "kuvasz.partitions.eu"}
    assert not dropped & table.properties.keys()
    assert table.commits == 1


def test_a_gap_opens_where_the_position_was(table: Table) -> None:
    notes = Notes(table)
    notes.park("eu", "a" * 32)
    notes.drop_position("eu", to_repair=True)
    (gap,) = notes.gaps("eu")
    assert (gap.from_lsn, gap.is_open) == (HERE.lsn, True)
    assert notes.parked("eu") is None
    assert source_positions.parse(table.properties, "t") == {"us": HERE}
    notes.drop_position("eu", to_repair=True)
    assert notes.gaps("eu") == (gap,), "without a position no other gap opens"


@pytest.mark.parametrize("sources", [1, 30], ids=["alone", "with many"])
@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize(
    ("shown", "begin"), [({"lsn": 0x1000}, 0x1000), ({"lsn": 0x1000, "history": 1}, 0), (None, 0)]
)
def test_the_gap_of_a_table_that_was_set_back_begins_behind_its_rows(
    table: Table, shown: dict[str, int] | None, begin: int, is_noticed: bool, sources: int
) -> None:
    """The position is that of rows which are gone; 0/0 where nothing says which are there."""
    table.properties |= {REWOUND_PREFIX + "eu": "why"} if is_noticed else {ANCHOR_PROPERTY: "a2"}
    table.summary = {ANCHOR_PROPERTY: "a1"}
    told = {f"s{number}": HERE for number in range(1, sources)}
    if shown is not None:
        told["eu"] = SourcePosition(**shown)
    texts = {source_positions.PREFIX + name: source_positions.render(one) for name, one in told.items()}
    table.summary |= source_positions.packed(texts)
    assert (source_positions.PACKED in table.summary) is (sources > 1)
    notes = Notes(table)
    notes.drop_position("eu", to_repair=True)
    (gap,) = notes.gaps("eu")
    assert gap.from_lsn == begin
    assert (SET_BACK_PROPERTY in table.properties) is not is_noticed, "whoever noticed it has said so"


def test_the_open_gap_is_closed_with_a_commit(table: Table) -> None:
    closed = Gap(from_lsn=1, noticed_us=2, to_lsn=3, until_us=4)
    table.properties[gaps.PREFIX + "eu"] = gaps.render((closed,))
    notes, changeset = Notes(table), Changeset()
    notes.close_gap(changeset, "eu", 5, 6)
    assert not changeset.properties
    notes.drop_position("eu", to_repair=True)
    before = dict(table.properties)
    notes.close_gap(changeset, "eu", 0x2000, 7)
    assert table.properties == before, "it is for the commit to do"
    first, last = gaps.parse(changeset.properties, "eu", "t")
    assert (first, last.from_lsn, last.to_lsn, last.until_us) == (closed, HERE.lsn, 0x2000, 7)
