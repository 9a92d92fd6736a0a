"""The manifest lists and manifests of a table with many snapshots, of which each list is the one before and a little.

PyIceberg makes out the Avro schema of each file anew, which takes longer than all entries of a small one, and each
entry of each list. Here a schema is made out once, and an entry that has the bytes of an earlier one is that one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from pyiceberg.avro.decoder import BinaryDecoder
    from pyiceberg.avro.reader import Reader
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record, StructProtocol

#: The newest form of manifests: files of older ones lack what came with it.
FORM = max(MANIFEST_ENTRY_SCHEMAS)

#: Id of a manifest's path in a manifest list (Iceberg spec, "Manifest Lists").
_PATH_ID = 500

_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


class _Form(NamedTuple):
    """What the entries of a kind of file become, by the ids of Iceberg's spec."""

    schema: Schema
    types: dict[int, Callable[..., StructProtocol]]
    enums: dict[int, Callable[..., Enum]]


_FORMS = {
    ManifestFile: _Form(
        MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION],
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    ),
    ManifestEntry: _Form(
        MANIFEST_ENTRY_SCHEMAS[FORM],
        {-1: ManifestEntry, 2: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ),
}


class ManifestReader:
    """The reader of a table's manifest lists and manifests; several threads may use it at a time.

    Args:
        io: The table's.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._known: dict[tuple[str, bytes], tuple[bytes, ManifestFile]] = {}  #: by schema and path

    def of_list(self, path: str) -> list[ManifestFile]:
        """Return the manifests of a manifest list."""
        schema, blocks = _opened(self._io, path)
        reader = _reader(ManifestFile, schema)
        if not _begins_with_path(schema):
            return [one for data, count in blocks for one in _entries(reader, data, count)]
        return [one for data, count in blocks for one in self._again(schema, reader, data, count)]

    def _again(self, schema: str, reader: Reader, data: bytes, count: int) -> Iterator[ManifestFile]:
        """Return the entries of a block, those that are known as they are known."""
        decoder, at = new_decoder(data), 0
        for _ in range(count):
            key = (schema, _text(data, at))
            raw, found = self._known.get(key, (b"", None))
            if found is not None and data.startswith(raw, at):
                decoder.skip(len(raw))
            else:
                found = reader.read(decoder)
                self._known[key] = (data[at : decoder.tell()], found)
            at = decoder.tell()
            yield found

    def entries(self, path: str) -> Iterator[ManifestEntry]:
        """Return the entries of a manifest, without what they inherit."""
        schema, blocks = _opened(self._io, path)
        reader = _reader(ManifestEntry, schema)
        return (entry for data, count in blocks for entry in _entries(reader, data, count))


@functools.lru_cache(maxsize=64)
def _reader(entry: type[Record], schema: str) -> Reader:
    """Return what reads the entries of files that have an Avro schema; it has no state."""
    form = _FORMS[entry]
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    return resolve_reader(written, form.schema, form.types, form.enums)


@functools.lru_cache(maxsize=64)
def _begins_with_path(schema: str) -> bool:
    """Whether the entries of a manifest list begin with the manifest's path, as those of all writers do."""
    return bool(json.loads(schema)["fields"][0].get("field-id") == _PATH_ID)


def _opened(io: FileIO, path: str) -> tuple[str, Iterator[tuple[bytes, int]]]:
    """Return the schema of an Avro file, and its blocks with how many entries each has."""
    with io.new_input(path).open() as stream:
        decoder = new_decoder(stream.read())
    header: AvroFileHeader = _HEADER.read(decoder)
    return header.meta["avro.schema"], _blocks(decoder, header)


def _blocks(decoder: BinaryDecoder, header: AvroFileHeader) -> Iterator[tuple[bytes, int]]:
    """Return the blocks of a file (Avro 1.12 specification, "Object Container Files")."""
    codec = header.compression_codec()
    while True:
        try:
            count = decoder.read_int()
        except EOFError:
            return
        data = decoder.read_bytes()
        yield (data if codec is None else codec.decompress(data)), count
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end as the others do")


def _entries(reader: Reader, data: bytes, count: int) -> Iterator[Any]:
    decoder = new_decoder(data)
    return (reader.read(decoder) for _ in range(count))


def _text(data: bytes, at: int) -> bytes:
    """Return the string that begins somewhere: its length, zigzag, seven bits a byte, and its bytes."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return data[at : at + (length >> 1)]


__all__ = ["ManifestReader"]
