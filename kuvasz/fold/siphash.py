"""SipHash in plain Python: hashes the few short values of a table's head, and is the yardstick of the kernels.

SipHash-c-d by Aumasson and Bernstein ("SipHash: a fast short-input PRF", 2012); the 128-bit form and its constants
0xee and 0xdd are those of the authors' reference code (github.com/veorq/SipHash, `siphash.c`).
"""

from __future__ import annotations

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_State = list[int]


def hash64(seed: bytes, message: bytes, *, compress: int = 1, finish: int = 3) -> int:
    """Return SipHash-`compress`-`finish` of `message` with 64 bits.

    Args:
        seed: 16 bytes, the key.
        message: Any bytes.
        compress: Rounds per word (c).
        finish: Rounds at the end (d).
    """
    state = _absorbed(seed, message, compress, is_wide=False)
    state[2] ^= 0xFF
    _rounds(state, finish)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def hash128(seed: bytes, message: bytes, *, compress: int = 1, finish: int = 3) -> tuple[int, int]:
    """Return SipHash-`compress`-`finish` of `message` with 128 bits: the first and the second 64-bit word.

    Args:
        seed: 16 bytes, the key.
        message: Any bytes.
        compress: Rounds per word (c).
        finish: Rounds at the end (d).
    """
    state = _absorbed(seed, message, compress, is_wide=True)
    state[2] ^= 0xEE
    _rounds(state, finish)
    first = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _rounds(state, finish)
    return first, state[0] ^ state[1] ^ state[2] ^ state[3]


def initial(seed: bytes, *, is_wide: bool) -> list[int]:
    """Return the state of four words before the first word of a message."""
    k0, k1 = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:16], "little")
    return [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ (0xEE if is_wide else 0),
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]


def absorb(state: list[int], word: int, compress: int) -> None:
    """Take one 64-bit word of the message into `state`."""
    state[3] ^= word
    _rounds(state, compress)
    state[0] ^= word


def _absorbed(seed: bytes, message: bytes, compress: int, *, is_wide: bool) -> _State:
    state = initial(seed, is_wide=is_wide)
    whole = len(message) // 8 * 8
    for at in range(0, whole, 8):
        absorb(state, int.from_bytes(message[at : at + 8], "little"), compress)
    absorb(state, int.from_bytes(message[whole:], "little") | (len(message) & 0xFF) << 56, compress)
    return state


def _rounds(state: _State, count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = (v2 + v3) & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    state[:] = [v0, v1, v2, v3]


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK
