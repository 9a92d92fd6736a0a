from __future__ import annotations

import pytest

from kuvasz.seal.sealing_key import SealDamaged
from kuvasz.seal.sealing_secrets import SealingSecrets, SealUnknown

ONE, TWO = "a secret of sixteen characters", "another one of as many"


def test_what_is_sealed_is_opened_by_whoever_has_the_secret() -> None:
    sealed = SealingSecrets(ONE).sealed(b"Zq7", b"here")
    assert b"Zq7" not in sealed
    assert SealingSecrets(ONE).opened(sealed, b"here") == b"Zq7"
    assert SealingSecrets(TWO, ONE).opened(sealed, b"here") == b"Zq7"
    assert SealingSecrets(None, ONE).opened(memoryview(sealed), b"here") == b"Zq7"


@pytest.mark.parametrize("others", [SealingSecrets(TWO), SealingSecrets(), SealingSecrets(TWO, TWO)])
def test_a_secret_that_is_not_there_is_no_damage(others: SealingSecrets) -> None:
    with pytest.raises(SealUnknown):
        others.opened(SealingSecrets(ONE).sealed(b"Zq7", b""), b"")


def test_the_one_of_now_seals() -> None:
    secrets = SealingSecrets(TWO, ONE)
    assert secrets.is_sealing
    with pytest.raises(SealUnknown):
        SealingSecrets(ONE).opened(secrets.sealed(b"Zq7", b""), b"")
    assert not SealingSecrets(None, ONE).is_sealing


@pytest.mark.parametrize("at", [8, 30, -1])
def test_what_changed_is_damaged(at: int) -> None:
    secrets = SealingSecrets(ONE)
    bad = bytearray(secrets.sealed(b"Zq7", b""))
    bad[at] ^= 1
    with pytest.raises(SealDamaged):
        secrets.opened(bad, b"")
    with pytest.raises(SealDamaged):
        secrets.opened(secrets.sealed(b"Zq7", b"here"), b"there")
    for size in range(9):
        with pytest.raises((SealDamaged, SealUnknown)):
            secrets.opened(bytes(size), b"")
