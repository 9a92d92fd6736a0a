from __future__ import annotations

from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition


def test_sources_go_on_from_their_positions() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=100), "us": SourcePosition(lsn=7)})
    assert (era.accepted, era.error, era.events) == ({"eu": 100, "us": 7}, None, {})


def test_what_was_written_never_goes_back() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=100)})
    era.accept({"eu": 50, "us": 8})
    assert era.accepted == {"eu": 100, "us": 8}
    era.accept({"eu": 150})
    assert era.accepted == {"eu": 150, "us": 8}


def test_an_era_is_no_other_that_looks_like_it() -> None:
    positions = {"eu": SourcePosition(lsn=100)}
    assert WriteEra.begin(positions) != WriteEra.begin(positions)


def test_a_position_that_is_dropped_is_counted_and_begins_nothing() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=7)})
    era.drop("eu")
    era.drop("eu")
    assert (era.accepted, era.position_resets) == ({}, {"eu": 2})
