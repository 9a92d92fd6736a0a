from __future__ import annotations

import pickle

import pytest

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
