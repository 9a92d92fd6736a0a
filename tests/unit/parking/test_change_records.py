from __future__ import annotations

import struct

import pytest

from kuvasz.parking.change_records import ChangeRecords
from kuvasz.parking.relation_numbers import RelationNumbers
from kuvasz.seal.sealing_key import SealDamaged
from kuvasz.seal.sealing_secrets import SealingSecrets
from tests.support.changes import ITEMS, Sender, insert
from tests.support.parked import facts

ID = "0123456789abcdef" * 2
CLEAR, SEALED = SealingSecrets(), SealingSecrets("a secret of sixteen characters")


def relations() -> RelationNumbers:
    made = RelationNumbers()
    made.add(ITEMS)
    return made


@pytest.mark.parametrize("secrets", [CLEAR, SEALED])
def test_a_change_is_what_it_was(secrets: SealingSecrets) -> None:
    records, eu = ChangeRecords("eu", secrets), Sender()
    segment, truncation = eu.transactions([insert(1, 1, "Zq7")], [insert(2)]), eu.truncation()
    payload = b"".join(records.segment(0, segment, ID))
    assert (b"Zq7" in payload) is (secrets is CLEAR)
    assert facts(records.read_segment(payload, relations(), ID, with_rows=True)) == facts(segment)
    assert records.read_truncation(records.truncation(0, truncation), relations()) == truncation


def test_a_version_that_knows_of_no_seal_reads_no_sealed_rows() -> None:
    """It finds no relation of a number that large, and says so."""
    payload = b"".join(ChangeRecords("eu", SEALED).segment(0, Sender().one(insert(1)), ID))
    (number,) = struct.unpack_from("<I", payload)
    assert number == 1 << 31
    with pytest.raises(IndexError):
        relations()[number]


def test_what_a_log_has_is_known_without_the_secret() -> None:
    segment = Sender().one(insert(1))
    payload = b"".join(ChangeRecords("eu", SEALED).segment(0, segment, ID))
    found = ChangeRecords("eu", CLEAR).read_segment(payload, relations(), ID, with_rows=False)
    assert found.data == b""
    assert found.transactions.commit_lsn.tolist() == segment.transactions.commit_lsn.tolist()


def test_rows_of_another_log_are_no_rows_of_this() -> None:
    records = ChangeRecords("eu", SEALED)
    payload = b"".join(records.segment(0, Sender().one(insert(1)), ID))
    with pytest.raises(SealDamaged):
        records.read_segment(payload, relations(), ID[::-1], with_rows=True)
