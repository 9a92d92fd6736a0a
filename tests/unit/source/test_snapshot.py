from __future__ import annotations

import pickle

import pytest

from kuvasz.errors import SourceError
from kuvasz.model import TableName
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
