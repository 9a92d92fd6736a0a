from __future__ import annotations

from kuvasz.errors import Retry, TableError
from kuvasz.lake.commit.failures import failed, told
from kuvasz.lake.format.binding import no_earlier_version
from kuvasz.model import SourcePosition
from kuvasz.ports import Failure, Receipt

T = "shop.items"
WRONG = TableError("wrong")


def receipt(**facts: object) -> Receipt:
    return Receipt(**{"target": T, "positions": {}, "rows": 0, "snapshot_id": None, **facts})  # type: ignore[arg-type]


def test_sources_that_are_left_out_are_told_before_the_others() -> None:
    of_others = receipt(positions={"us": SourcePosition(lsn=5)}, rows=1, snapshot_id=7)
    assert told({"eu": WRONG}, of_others) == (Failure(target=T, source="eu", error=WRONG), of_others)
    assert told({}, of_others) == (of_others,)


def test_where_there_are_no_others_nothing_is_told_of_them() -> None:
    assert told({"eu": WRONG}, receipt()) == (Failure(target=T, source="eu", error=WRONG),)
    assert told({}, receipt()) == (receipt(),)
    part = receipt(rows=1)  # of a transaction that goes on
    assert told({"eu": WRONG}, part)[-1] is part


def test_a_table_fails_for_all_of_its_sources() -> None:
    assert failed(T, WRONG, {"eu", "us"}) == (Failure(target=T, error=WRONG),)


def test_rows_without_an_earlier_version_fail_for_their_source_and_others_begin_again() -> None:
    error = no_earlier_version("us", T, 1)
    first, last = failed(T, error, {"eu", "us"})
    assert first == Failure(target=T, source="us", error=error)
    assert (last.source, last.error.retry) == (None, Retry.TIMED)
    assert failed(T, error, {"us"}) == (Failure(target=T, error=error),), "there are no others"
