"""Deletion vectors as a Puffin file (Puffin spec, "File structure" and "deletion-vector-v1 blob type").

Pure: bytes in, bytes out. Many vectors share one file, so a commit costs one PUT for all of its deletes.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from collections.abc import Iterable

from pyroaring import BitMap64

from kuvasz.errors import DecodeError

_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"

#: Reserved id of the column _pos (Iceberg spec, "Reserved Field IDs").
_POSITION_FIELD = 2147483645


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The deleted positions of one data file, and where they lie in a Puffin file."""

    data_file: str
    offset: int
    size: int  #: bytes
    cardinality: int


def encode(vectors: Iterable[tuple[str, BitMap64]]) -> tuple[bytes, list[Vector]]:
    """Return a Puffin file with one deletion vector per data file, and where each lies."""
    parts = [_MAGIC]
    offset = len(_MAGIC)
    placed: list[Vector] = []
    for data_file, positions in vectors:
        blob = _blob(positions)
        placed.append(Vector(data_file=data_file, offset=offset, size=len(blob), cardinality=len(positions)))
        parts.append(blob)
        offset += len(blob)
    parts.append(_footer(placed))
    return b"".join(parts), placed


def _blob(positions: BitMap64) -> bytes:
    body = _VECTOR_MAGIC + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _footer(vectors: Iterable[Vector]) -> bytes:
    payload = json.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1",
                    "fields": [_POSITION_FIELD],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": vector.offset,
                    "length": vector.size,
                    "properties": {
                        "referenced-data-file": vector.data_file,
                        "cardinality": str(vector.cardinality),
                    },
                }
                for vector in vectors
            ],
            "properties": {"created-by": "kuvasz"},
        }
    ).encode()
    return _MAGIC + payload + struct.pack("<I", len(payload)) + b"\x00\x00\x00\x00" + _MAGIC


def decode(blob: bytes) -> BitMap64:
    """Return the positions of one deletion vector blob.

    Raises:
        DecodeError: Length, magic or checksum are wrong.
    """
    body = blob[4:-4]
    if (
        len(blob) < 12
        or struct.unpack(">I", blob[:4])[0] != len(body)
        or body[:4] != _VECTOR_MAGIC
        or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body)
    ):
        message = f"a deletion vector of {len(blob)} bytes is damaged"
        raise DecodeError(message, hint="the store returned other bytes than were written: check it")
    return BitMap64.deserialize(body[4:])
