"""The secrets of a map, for rows that outlive the process: one seals, and an earlier one opens what it has sealed.

which secret | what `SealingKey` makes of the bytes
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from typing import Final

from kuvasz.seal.sealing_key import Buffer, SealDamaged, SealingKey

#: Makes a guess at a secret as dear as this many.
_ROUNDS: Final = 100_000

_SALT: Final = b"kuvasz.seal."
_MARK: Final = b"kuvasz which"
_MARK_BYTES: Final = 8


class SealUnknown(Exception):
    """Bytes were sealed with a secret that the map does not have."""


class SealingSecrets:
    """The secrets. From any thread.

    Args:
        now: The one that seals; None: nothing is sealed.
        earlier: One that did so before, if there was one.
    """

    def __init__(self, now: str | None = None, earlier: str | None = None) -> None:
        self._now = now
        self._known = tuple(dict.fromkeys(secret for secret in (now, earlier) if secret is not None))

    @property
    def is_sealing(self) -> bool:
        """Whether there is one that seals."""
        return self._now is not None

    def sealed(self, data: Buffer, about: bytes) -> bytes:
        """Return what data becomes.

        Args:
            data: Any bytes.
            about: What they belong to; whoever opens them says the same.
        """
        assert self._now is not None
        key, mark = _key_of(self._now)
        return mark + key.sealed(data, about)

    def opened(self, sealed: Buffer, about: bytes) -> memoryview:
        """Return what was sealed; nobody can write to it.

        Raises:
            SealDamaged: The bytes are not what was sealed.
            SealUnknown: They were sealed with a secret that is not there.
        """
        view = memoryview(sealed)
        if len(view) <= _MARK_BYTES:
            raise SealDamaged(f"{len(view)} bytes are no sealed message")
        for secret in self._known:
            key, mark = _key_of(secret)
            if view[:_MARK_BYTES] == mark:
                return key.opened(view[_MARK_BYTES:], about)
        raise SealUnknown


@functools.lru_cache(maxsize=8)
def _key_of(secret: str) -> tuple[SealingKey, bytes]:
    """Return the key that is made of a secret, and what tells it from others and says little of it."""
    key = hashlib.pbkdf2_hmac("sha256", secret.encode(), _SALT, _ROUNDS)
    return SealingKey(key), hmac.digest(key, _MARK, "sha256")[:_MARK_BYTES]


__all__ = ["SealUnknown", "SealingSecrets"]
