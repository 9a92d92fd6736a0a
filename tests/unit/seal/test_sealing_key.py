from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.seal import sealing_key
from kuvasz.seal.sealing_key import SealDamaged, SealingKey, sealed_size

CLEAR = b"Zq7 a value that nobody may see"
BLOCK = 1 << 18


def sealed(key: SealingKey, data: bytes, about: bytes = b"") -> bytes:
    return key.sealed(data, about)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(data=st.binary(max_size=200), about=st.binary(max_size=20))
def test_what_is_sealed_is_opened(data: bytes, about: bytes) -> None:
    key = SealingKey.random()
    found = sealed(key, data, about)
    assert len(found) == sealed_size(len(data))
    assert key.opened(found, about) == data
    assert SealingKey(key.key).opened(memoryview(found), about) == data


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_size_and_buffer_will_do(size: int, kind: type) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    key = SealingKey.random()
    found = key.sealed(kind(data))
    assert len(found) == sealed_size(size)
    assert key.opened(kind(found)) == data


def test_it_is_read_as_bytes_of_a_file_are() -> None:
    """Kernels are compiled for arrays that nobody writes to."""
    key = SealingKey.random()
    array = np.frombuffer(key.opened(sealed(key, b"abcd")), np.uint8)
    assert not array.flags.writeable
    assert array.tobytes() == b"abcd"


def test_nothing_of_it_can_be_seen_and_no_two_are_alike() -> None:
    key = SealingKey.random()
    found = [sealed(key, CLEAR * 10) for _ in range(50)]
    assert not any(CLEAR[:6] in one for one in found)
    assert len({one[:16] for one in found}) == 50, "each has a salt, and so a key, of its own"
    assert len({one[16:48] for one in found}) == 50


@pytest.mark.parametrize("at", [0, 15, 16, 40, BLOCK + 16, BLOCK + 33, -1])
def test_a_bit_that_flipped_is_no_other_value(at: int) -> None:
    key = SealingKey.random()
    bad = bytearray(sealed(key, bytes(BLOCK + 100)))
    bad[at] ^= 1
    with pytest.raises(SealDamaged):
        key.opened(bad)


def test_what_was_cut_off_or_moved_is_noticed() -> None:
    key, other = SealingKey.random(), SealingKey.random()
    data = bytes(2 * BLOCK)
    good = sealed(key, data, b"here")
    salt, first, second = good[:16], good[16 : BLOCK + 32], good[BLOCK + 32 :]
    assert key.opened(salt + first + second, b"here") == data
    for bad in (b"", salt, salt[:5], salt + b"x" * 15, good[:-1], salt + first, salt + second, salt + second + first,
                good + b"x", good + first):  # fmt: skip
        with pytest.raises(SealDamaged):
            key.opened(bad, b"here")
    with pytest.raises(SealDamaged):
        key.opened(good, b"there")
    with pytest.raises(SealDamaged):
        other.opened(good, b"here")


def test_the_key_travels_and_is_not_shown() -> None:
    key = SealingKey(b"Zq7" * 11)
    assert pickle.loads(pickle.dumps(key)) == key
    assert "Zq7" not in repr(key) + str(key)
    assert len(SealingKey.random().key) == 32
    assert SealingKey.random() != SealingKey.random()


def test_nonces_of_a_message_differ() -> None:
    nonces = {sealing_key._nonce(number, is_last) for number in range(300) for is_last in (False, True)}
    assert len(nonces) == 600
    assert {len(one) for one in nonces} == {12}
