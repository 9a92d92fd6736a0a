from __future__ import annotations

import pickle
import time
from types import SimpleNamespace

import pytest

from kuvasz.errors import SourceError, SourceSlow
from kuvasz.model import TableName
from kuvasz.source import conninfo, copy_out
from kuvasz.source.snapshot import CopyRange


def copy_range(**changes):
    given = {"conninfo": "host=h password=s3cret", "snapshot_name": "0-1", "columns": ("id", "Mixed x"),
             "table": TableName(schema="s", name="a.b")}  # fmt: skip
    return CopyRange(**{**given, **changes})


@pytest.mark.parametrize(
    ("bounds", "where"),
    [
        ({}, ""),
        ({"end_block": 5}, " WHERE ctid >= '(0,0)'::tid AND ctid < '(5,0)'::tid"),
        ({"first_block": 5, "end_block": 9}, " WHERE ctid >= '(5,0)'::tid AND ctid < '(9,0)'::tid"),
        ({"first_block": 9}, " WHERE ctid >= '(9,0)'::tid"),
    ],
)
def test_query(bounds, where):
    assert copy_range(**bounds).query() == (f'COPY (SELECT "id", "Mixed x" FROM ONLY "s"."a.b"{where}) TO STDOUT')


def test_it_travels_pickled_and_never_shows_its_password():
    sent = copy_range()
    assert pickle.loads(pickle.dumps(sent)) == sent
    assert "s3cret" not in repr(sent)


def test_it_is_read_with_the_password_that_is_there_when_it_begins():
    urls = iter(["postgresql://r:first@other/d", "postgresql://r:second@other/d"])
    sent = copy_range(url=lambda: next(urls))
    assert sent.as_of_now() == copy_range(conninfo="password=first host=h")
    taken = pickle.loads(pickle.dumps(sent))
    assert taken == taken.as_of_now() == copy_range(conninfo="password=second host=h")


def test_a_password_that_is_not_there_is_the_one_of_before():
    def url():
        raise SourceError("cannot read the file")

    assert copy_range(url=url).as_of_now() == copy_range()


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_hurried_range_waits_no_longer_for_its_transaction_to_begin_than_for_rows(monkeypatch, is_silent):
    """The server may wait for a lock, or be silent; what it refuses at once is no matter of time."""
    asked = []

    def execute(_, statements, answer_s=None):
        asked.append(answer_s)
        time.sleep(0.02 if is_silent else 0)
        raise SourceError("it has not answered")

    monkeypatch.setattr(copy_out, "HURRY_S", 0.01 if is_silent else 60)
    monkeypatch.setattr(conninfo, "connect_pq", lambda *_: SimpleNamespace(finish=lambda: None))
    monkeypatch.setattr(conninfo, "execute", execute)
    for sent, kind in (
        (copy_range().hurried(), SourceSlow if is_silent else SourceError),
        (copy_range(), SourceError),
    ):
        with pytest.raises(SourceError) as caught:
            next(sent.read())
        assert type(caught.value) is kind
    assert asked == [copy_out.HURRY_S, None]
