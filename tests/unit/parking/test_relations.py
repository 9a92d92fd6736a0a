from __future__ import annotations

import json

import pytest

from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, Uniqueness
from kuvasz.parking import relations

TEXT = PgType(oid=25, name="text")
LIST = PgType(oid=1009, name="_text", element=TEXT, delimiter=";")
DOMAIN = PgType(oid=70000, name="short", schema="public", category="d", base=LIST, base_typmod=8)


@pytest.mark.parametrize("kind", [TEXT, LIST, DOMAIN])
def test_a_relation_comes_back_as_it_was(kind: PgType) -> None:
    columns = (
        Column(name="id", pg_type=PgType(oid=20, name="int8"), is_key=True, attnum=1, is_nullable=False),
        Column(
            name='ö "x"\n',
            pg_type=kind,
            typmod=7,
            missing="a",
            is_grid=True,
            has_default=True,
            facts=("a", "b"),
        ),
    )
    relation = Relation(
        oid=16385, table=TableName(schema="public", name="a.b"), identity=ReplicaIdentity.FULL, columns=columns,
        file=5, attributes=4, dropped=(2, 3), leaf_files=7, uniqueness=Uniqueness(3, 2, 1),
    )  # fmt: skip
    assert relations.parse(relations.render(relation)) == relation


def test_a_relation_of_an_earlier_version_comes_back() -> None:
    relation = Relation(
        oid=16385, table=TableName(schema="public", name="a"), identity=ReplicaIdentity.DEFAULT,
        columns=(Column(name="id", pg_type=TEXT),),
    )  # fmt: skip
    found = json.loads(relations.render(relation))
    found["columns"][0]["version"] = 0  # which stood there
    assert relations.parse(json.dumps(found).encode()) == relation


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"table": 1}'])
def test_what_is_no_relation_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        relations.parse(data)
