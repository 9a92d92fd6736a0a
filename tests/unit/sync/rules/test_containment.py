from __future__ import annotations

import dataclasses
import decimal

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, Retry, Scope
from kuvasz.model import TableName
from kuvasz.sync.rules.containment import unforeseen

SPEC = SourceTableSpec(
    table=TableName(schema="public", name="items"), config=TableConfig(), namespace="shop", target="items",
    has_sid=False,
)  # fmt: skip


def test_what_nobody_thought_of_is_an_error_of_its_table(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise decimal.InvalidOperation("x" * 1000)
    except decimal.InvalidOperation as caught:
        error = unforeseen("shop_eu", dataclasses.replace(SPEC, target="things"), caught, is_ending=False)
    assert (error.scope, error.retry) == (Scope.TABLE, Retry.HUMAN)
    said = str(error)
    assert said.startswith(
        "source shop_eu, table public.items: kuvasz cannot make out its columns: InvalidOperation: xx"
    )
    assert len(said) < 500
    assert said.endswith("kuvasz retry --table shop.things tries again")
    (record,) = caplog.records
    assert record.exc_info is not None


def test_a_lake_that_closes_at_the_end_is_no_table_s_fault(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("cannot schedule new futures after shutdown")
    with pytest.raises(LakeError, match="ends while a table is looked at: cannot schedule new futures"):
        unforeseen("shop_eu", SPEC, error, is_ending=True)
    assert not caplog.records
