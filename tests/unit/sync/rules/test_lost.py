"""Which way a table comes over a gap."""

from __future__ import annotations

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost
from kuvasz.model import TableName
from kuvasz.ports import Gap
from kuvasz.sync.rules.lost import GapRemedy, cure

TABLE = TableName(schema="public", name="items")
GAP = Gap(from_lsn=0x1A2B, noticed_us=0)


def found(*, is_accepted: bool = False, **options: object) -> GapRemedy:
    config = TableConfig.model_validate(options)
    spec = SourceTableSpec(table=TABLE, config=config, namespace="shop", target="items", has_sid=False)
    return cure("shop_eu", spec, GAP, is_accepted=is_accepted)


@pytest.mark.parametrize("kind", ["clone", "history"])
@pytest.mark.parametrize("options", [{}, {"filter": "id > 1"}, {"set": {"id": "id"}}, {"mask": {"name": "hmac"}}])
def test_what_shows_the_source_is_compared(options: dict, kind: str) -> None:
    assert found(type=kind, **options) is GapRemedy.COMPARE


@pytest.mark.parametrize("kind", ["append", "changelog"])
def test_what_grows_goes_on_when_a_person_says_so(kind: str) -> None:
    with pytest.raises(ChangesLost) as caught:
        found(type=kind)
    assert "kuvasz retry --table shop.items goes on with the gap" in str(caught.value)
    assert found(type=kind, is_accepted=True) is GapRemedy.ACCEPT
