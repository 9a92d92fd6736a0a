"""Every byte that lies in a folder, with Parquet and Avro unpacked: for tests that must find nothing of a value."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def holding(folder: Path, text: str) -> list[str]:
    """Return the files below a folder in which a text stands, however it is packed."""
    wanted = text.encode()
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(wanted in piece for piece in _pieces(path))
    )


def _pieces(path: Path) -> Iterator[bytes]:
    whole = path.read_bytes()
    yield whole
    yield str(path).encode()
    if path.name.endswith(".parquet"):
        file = pq.ParquetFile(io.BytesIO(whole))
        yield str(file.read().to_pylist()).encode()
    elif path.name.endswith(".avro"):
        yield from _blocks(whole)


def _blocks(whole: bytes) -> Iterator[bytes]:
    """Yield the blocks of an Avro file, inflated (Avro specification, "Object Container Files")."""
    assert whole.startswith(b"Obj\x01")
    place, facts = 4, {}
    while True:
        count, place = _long(whole, place)
        if not count:
            break
        for _ in range(abs(count)):
            name, place = _bytes(whole, place)
            facts[name], place = _bytes(whole, place)
    place += 16
    while place < len(whole):
        _, place = _long(whole, place)
        block, place = _bytes(whole, place)
        place += 16
        yield zlib.decompress(block, -15) if facts.get(b"avro.codec", b"null") == b"deflate" else block


def _bytes(whole: bytes, place: int) -> tuple[bytes, int]:
    size, place = _long(whole, place)
    return whole[place : place + size], place + size


def _long(whole: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = whole[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return (value >> 1) ^ -(value & 1), place
