"""A key, and bytes that it makes unreadable: AES-256-GCM, a block at a time, each message under a key of its own.

    salt | block | block | …        block: what 256 kB became, and 16 bytes that prove it

A message's key is HMAC-SHA-256 of a random salt, so no message has that of another one. Within a message blocks are
counted, and the last says that it is: what was cut off, put elsewhere or changed by a bit is an error.

Blocks pass one small buffer: to touch as much new memory as a message is large takes longer than the cipher.
"""

from __future__ import annotations

import dataclasses
import hmac
import io
import os
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Buffer: TypeAlias = bytes | bytearray | memoryview

_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 1 << 18

_PURPOSE: Final = b"kuvasz sealed 1"


class SealDamaged(Exception):
    """Bytes are not what was sealed, or were sealed for something else or with another key."""


@dataclasses.dataclass(frozen=True, slots=True)
class SealingKey:
    """The key. It travels pickled to executors.

    Args:
        key: Its bytes, which nobody can guess.
    """

    key: bytes = dataclasses.field(repr=False)

    @staticmethod
    def random() -> SealingKey:
        """Return one that nobody else has."""
        return SealingKey(os.urandom(_KEY_BYTES))

    def seal(self, data: Buffer, into: IO[bytes], about: bytes = b"") -> int:
        """Write what data became, and return how many bytes these are.

        Args:
            data: Any bytes.
            into: Where they go.
            about: What they belong to; whoever opens them says the same.
        """
        salt = os.urandom(_SALT_BYTES)
        into.write(salt)
        cipher, view, end = self._cipher(salt), memoryview(data).cast("B"), len(data)
        block = memoryview(bytearray(min(end, _BLOCK_BYTES) + _TAG_BYTES))
        for begin in range(0, max(end, 1), _BLOCK_BYTES):
            part = view[begin : begin + _BLOCK_BYTES]
            whole = block[: len(part) + _TAG_BYTES]
            cipher.encrypt_into(_nonce(begin // _BLOCK_BYTES, begin + _BLOCK_BYTES >= end), part, about, whole)
            into.write(whole)
        return sealed_size(end)

    def open(self, sealed: IO[bytes], size: int, about: bytes = b"") -> memoryview:
        """Return what was sealed; nobody can write to it.

        Args:
            sealed: Where it is to be read.
            size: How many bytes it became.
            about: What it belongs to, as it was sealed.

        Raises:
            SealDamaged: The bytes are not what was sealed.
        """
        from cryptography.exceptions import InvalidTag

        opened, blocks = _opened_size(size)
        found = memoryview(bytearray(opened))
        cipher = self._cipher(_filled(sealed, memoryview(bytearray(_SALT_BYTES))))
        block = memoryview(bytearray(min(opened, _BLOCK_BYTES) + _TAG_BYTES))
        for number in range(blocks):
            part = found[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
            whole = _filled(sealed, block[: len(part) + _TAG_BYTES])
            try:
                cipher.decrypt_into(_nonce(number, number == blocks - 1), whole, about, part)
            except InvalidTag:
                raise SealDamaged("its seal does not fit") from None
        return found.toreadonly()

    def sealed(self, data: Buffer, about: bytes = b"") -> bytes:
        """Return what data became; see `seal`."""
        into = io.BytesIO()
        self.seal(data, into, about)
        return into.getvalue()

    def opened(self, sealed: Buffer, about: bytes = b"") -> memoryview:
        """Return what was sealed; see `open`.

        Raises:
            SealDamaged: The bytes are not what was sealed.
        """
        return self.open(io.BytesIO(sealed), len(sealed), about)

    def _cipher(self, salt: Buffer) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loading it takes 70 ms

        return AESGCM(hmac.digest(self.key, _PURPOSE + salt, "sha256"))


def sealed_size(size: int) -> int:
    """Return how many bytes so many become."""
    return _SALT_BYTES + size + _TAG_BYTES * max(1, -(-size // _BLOCK_BYTES))


def _opened_size(size: int) -> tuple[int, int]:
    """Return how many bytes were sealed to so many, and in how many blocks.

    Raises:
        SealDamaged: Nothing becomes so many.
    """
    blocks = -(-(size - _SALT_BYTES) // (_BLOCK_BYTES + _TAG_BYTES))
    found = size - _SALT_BYTES - blocks * _TAG_BYTES
    if blocks < 1 or sealed_size(max(0, found)) != size:
        raise SealDamaged(f"{size} bytes are no sealed message")
    return found, blocks


def _filled(source: Any, buffer: memoryview) -> memoryview:  # noqa: ANN401 (whatever has `readinto`)
    """Fill a buffer, and return it.

    Raises:
        SealDamaged: There is less.
    """
    at = 0
    while at < len(buffer):
        read = source.readinto(buffer[at:])
        if not read:
            raise SealDamaged("its end is missing")
        at += read
    return buffer


def _nonce(number: int, is_last: bool) -> bytes:  # noqa: FBT001 (the two parts of it)
    return number.to_bytes(11, "big") + bytes((is_last,))


__all__ = ["Buffer", "SealDamaged", "SealingKey", "sealed_size"]
