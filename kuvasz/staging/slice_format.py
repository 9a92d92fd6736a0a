"""A slice of an object: stretches of one source's stream as bytes, understood and checked by itself. Pure.

    magic | CRC-32 of the rest | source, first and last number, sizes | descriptions | lengths | payloads

If the map has a secret for it, all behind the CRC-32 is sealed, under another magic.

An object is slices one after another, and what tells them apart stands in the index (`kuvasz.state.staged`). The
descriptions are those that the rows need before the slice describes a relation itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from kuvasz.model import UInt32s
from kuvasz.seal.sealing_key import SealDamaged
from kuvasz.seal.sealing_secrets import SealingSecrets
from kuvasz.staging.stream_messages import Description, StreamMessages
from kuvasz.staging.stretch import Stretch

_MAGIC: Final = b"kvszslc1"
_KIND: Final = b"kvszslc"
_SEALED_MAGIC: Final = b"kvszslc2"
_CHECK: Final = struct.Struct("<8sI")
#: Bytes of the source's name, first and last number, description messages and their bytes, messages and theirs.
_HEAD: Final = struct.Struct("<HQQIQIQ")


_NO_SECRETS: Final = SealingSecrets()


class SliceDamaged(Exception):
    """A slice is not what was written."""


class SliceUnknown(Exception):
    """A slice is of a later version."""


class SliceData(NamedTuple):
    """What a slice holds."""

    data: bytes
    lengths: UInt32s
    needs: Mapping[int, Description]


def encode(source: str, stretches: Sequence[Stretch], secrets: SealingSecrets = _NO_SECRETS) -> list[bytes]:
    """Return stretches that follow each other as a slice, in pieces: those that are large are not copied."""
    needs: dict[int, Description] = {}
    described: set[int] = set()
    for stretch in stretches:
        for oid, description in stretch.needs.items():
            if oid not in described:
                needs.setdefault(oid, description)
        described |= stretch.describes.keys()
    told = [message for description in needs.values() for message in description]
    payloads = [stretch.data for stretch in stretches]
    lengths = np.concatenate([stretch.lengths for stretch in stretches]).astype("<u4")
    name = source.encode()
    head = _HEAD.pack(
        len(name), stretches[0].number, stretches[-1].number, len(told), sum(map(len, told)), len(lengths),
        sum(map(len, payloads)),
    )  # fmt: skip
    told_lengths = np.array([len(message) for message in told], "<u4")
    rest = [b"".join((head, name, told_lengths.tobytes(), *told, lengths.tobytes())), *payloads]
    if not secrets.is_sealing:
        return [_CHECK.pack(_MAGIC, _checksum(rest)), *rest]
    sealed = secrets.sealed(b"".join(rest), _SEALED_MAGIC)
    return [_CHECK.pack(_SEALED_MAGIC, zlib.crc32(sealed)), sealed]


def decode(found: bytes, source: str, first: int, last: int, secrets: SealingSecrets = _NO_SECRETS) -> SliceData:
    """Return what a slice holds.

    Args:
        found: Its bytes.
        source: Whose it is meant to be.
        first: The number of its first stretch.
        last: The number of its last one.
        secrets: What it may be sealed with.

    Raises:
        SliceDamaged: It is not what was written, or another one.
        SliceUnknown: It is of a later version.
        SealUnknown: It is sealed with a secret that is not among them.
    """
    found = _opened(found, secrets)
    at = 0
    name_size, *numbers, told_count, told_size, count, size = _HEAD.unpack_from(found, at)
    at += _HEAD.size
    name = found[at : at + name_size].decode()
    at += name_size
    if (name, *numbers) != (source, first, last):
        raise SliceDamaged(f"it holds {numbers[0]} to {numbers[1]} of {name}")
    told_lengths = np.frombuffer(found, "<u4", told_count, at)
    at += told_lengths.nbytes
    told = StreamMessages(found[at : at + told_size], told_lengths)
    at += told_size
    lengths = np.frombuffer(found, "<u4", count, at)
    at += lengths.nbytes
    needs = {one.oid: one.description for one in told.described()}
    return SliceData(data=found[at : at + size], lengths=lengths, needs=needs)


def _checksum(pieces: Iterable[bytes]) -> int:
    found = 0
    for piece in pieces:
        found = zlib.crc32(piece, found)
    return found


def _opened(found: bytes, secrets: SealingSecrets) -> bytes:
    """Return what is behind the checksum, as it was before it was sealed."""
    try:
        magic, checksum = _CHECK.unpack_from(found)
    except struct.error:
        raise SliceDamaged(f"{len(found)} bytes are no slice") from None
    rest = memoryview(found)[_CHECK.size :]
    is_whole = zlib.crc32(rest) == checksum
    if is_whole and magic.startswith(_KIND) and magic[len(_KIND) :].isdigit() and magic > _SEALED_MAGIC:
        raise SliceUnknown("a later version of kuvasz wrote it")
    if magic not in {_MAGIC, _SEALED_MAGIC} or not is_whole:
        raise SliceDamaged("its checksum does not fit")
    try:
        return bytes(rest) if magic == _MAGIC else bytes(secrets.opened(rest, _SEALED_MAGIC))
    except SealDamaged as error:
        raise SliceDamaged(str(error)) from error


__all__ = ["SliceDamaged", "SliceData", "SliceUnknown", "decode", "encode"]
