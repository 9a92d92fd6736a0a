"""What a slice says of itself, and what is no slice. What it holds is `test_retelling`'s."""

from __future__ import annotations

import zlib

import pytest

from kuvasz.seal.sealing_secrets import SealingSecrets, SealUnknown
from kuvasz.staging import slice_format
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.slice_format import SliceDamaged, SliceUnknown
from kuvasz.staging.stream_messages import StreamMessages
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, relation, row

SEALED = SealingSecrets("a secret of sixteen characters")
CLEAR = SealingSecrets()


def made(secrets: SealingSecrets = CLEAR) -> bytes:
    cutter = Cutter(50, 0, 0)
    stretches = [
        stretch
        for messages in (
            [begin(100), relation(1), row(1, "a"), commit(100)],
            [begin(200), row(1, "b"), relation(2), row(2, "c"), commit(200)],
        )
        for stretch in cutter.feed(StreamMessages(*pgoutput.gulp(messages)))
    ]
    return b"".join(slice_format.encode("eu", stretches, secrets))


@pytest.mark.parametrize("secrets", [CLEAR, SEALED])
def test_stretches_are_one_run_of_messages(secrets: SealingSecrets) -> None:
    found = slice_format.decode(made(secrets), "eu", 1, 2, secrets)
    assert (len(found.lengths), found.needs) == (9, {}), "it describes relations itself"
    assert found.data.startswith(begin(100))
    assert found.data.endswith(commit(200))


@pytest.mark.parametrize("which", [("us", 1, 2), ("eu", 2, 2), ("eu", 1, 3)])
@pytest.mark.parametrize("secrets", [CLEAR, SEALED])
def test_another_slice_is_refused(secrets: SealingSecrets, which: tuple[str, int, int]) -> None:
    with pytest.raises(SliceDamaged, match="it holds 1 to 2 of eu"):
        slice_format.decode(made(secrets), *which, secrets)


def test_nothing_of_a_sealed_slice_can_be_read() -> None:
    sealed = made(SEALED)
    assert b"public" in made()
    assert b"public" not in sealed
    with pytest.raises(SealUnknown):
        slice_format.decode(sealed, "eu", 1, 2)
    assert slice_format.decode(made(), "eu", 1, 2, SEALED).data, "what is staged when a map gets a secret stays good"


def test_a_sealed_slice_that_somebody_altered_is_damaged_whatever_its_checksum() -> None:
    bad = bytearray(made(SEALED))
    bad[60] ^= 1
    bad[8:12] = zlib.crc32(bad[12:]).to_bytes(4, "little")
    with pytest.raises(SliceDamaged, match="its seal does not fit"):
        slice_format.decode(bytes(bad), "eu", 1, 2, SEALED)


@pytest.mark.parametrize("secrets", [CLEAR, SEALED])
def test_each_bit_counts(secrets: SealingSecrets) -> None:
    good = made(secrets)
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 16
        with pytest.raises(SliceDamaged):
            slice_format.decode(bytes(bad), "eu", 1, 2, secrets)
    for size in (0, 5, 12, 40, len(good) - 1):
        with pytest.raises(SliceDamaged):
            slice_format.decode(good[:size], "eu", 1, 2, secrets)


def test_one_of_a_later_version_is_not_damaged() -> None:
    """Its source would be lost else, and copied again, while a cluster gets a new version."""
    good, secrets = made(CLEAR), CLEAR
    with pytest.raises(SliceUnknown):
        slice_format.decode(good.replace(b"kvszslc1", b"kvszslc3", 1), "eu", 1, 2, secrets)
    with pytest.raises(SliceDamaged):
        slice_format.decode(good.replace(b"kvszslc1", b"kvszslc3", 1)[:-1], "eu", 1, 2, secrets)
