"""Which way a table comes over a gap."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.ports import Gap
from kuvasz.sync.rules.lost import Cure, cure

TABLE = TableName(schema="public", name="items")
KEY = Column(name="id", pg_type=PgType(oid=23, name="int4"), is_key=True)
KEYED = Relation(oid=1, table=TABLE, identity=ReplicaIdentity.DEFAULT, columns=(KEY,))
KEYLESS = dataclasses.replace(KEYED, columns=(dataclasses.replace(KEY, is_key=False),))
GAP = Gap(from_lsn=0x1A2B, noticed_us=0)


def found(relation: Relation = KEYED, *, is_accepted: bool = False, **options: object) -> Cure:
    config = TableConfig.model_validate(options)
    spec = SourceTableSpec(table=TABLE, config=config, namespace="shop", target="items", has_sid=False)
    return cure("shop_eu", spec, relation, GAP, is_accepted=is_accepted)


@pytest.mark.parametrize("kind", ["clone", "history"])
def test_what_has_a_key_is_compared(kind: str) -> None:
    assert found(type=kind) is Cure.COMPARE


@pytest.mark.parametrize("kind", ["clone", "history"])
@pytest.mark.parametrize(
    "options", [{"filter": "id > 1"}, {"set": {"id": "id"}}, {"mask": {"name": "hmac"}}, {"relation": KEYLESS}]
)
def test_what_cannot_be_compared_is_copied_again(options: dict, kind: str) -> None:
    assert found(type=kind, **options) is Cure.COPY


@pytest.mark.parametrize("kind", ["append", "changelog"])
def test_what_grows_goes_on_when_a_person_says_so(kind: str) -> None:
    with pytest.raises(ChangesLost) as caught:
        found(type=kind)
    assert "kuvasz retry --table shop.items goes on with the gap" in str(caught.value)
    assert found(type=kind, is_accepted=True) is Cure.ACCEPT
