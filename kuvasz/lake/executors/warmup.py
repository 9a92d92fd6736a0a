"""Load, or at the very first start compile, on an executor what the first changes would otherwise wait for."""

from __future__ import annotations

import dataclasses
import gc
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from kuvasz import typemap
from kuvasz.index import bulk
from kuvasz.lake.executors.tasks import slim_worker
from kuvasz.lake.files.data_file import DataFileWriter, remove, writing
from kuvasz.lake.files.file_io import file_io
from kuvasz.model import LakeType, TableName, ValueType, Wire
from kuvasz.modes import clone
from kuvasz.modes.shape import Binding, Shape

#: Column name, type and a value, one for each family of kernels.
_COLUMNS = (
    ("id", ValueType(kind=LakeType.LONG, wire=Wire.INTEGER), b"7"),
    ("flag", ValueType(kind=LakeType.BOOLEAN, wire=Wire.BOOL), b"t"),
    ("name", ValueType(kind=LakeType.STRING), b"kestrel"),
    ("price", ValueType(kind=LakeType.DECIMAL, wire=Wire.NUMERIC, precision=12, scale=2), b"12.50"),
    ("ratio", ValueType(kind=LakeType.DOUBLE, wire=Wire.FLOAT), b"0.25"),
    ("day", ValueType(kind=LakeType.DATE, wire=Wire.DATE), b"2024-02-29"),
    ("at", ValueType(kind=LakeType.TIMESTAMPTZ, wire=Wire.TIMESTAMPTZ), b"2024-02-29 12:00:00.5+00"),
    ("code", ValueType(kind=LakeType.UUID, wire=Wire.UUID), b"00000000-0000-4000-8000-000000000001"),
    ("raw", ValueType(kind=LakeType.BINARY, wire=Wire.HEX), b"\\x00ff"),
)


#: Of noise, in one row.
_BLOCK_BYTES = 1 << 20


class WarmUp:
    """A job that touches every kernel once."""

    def __call__(self, tasks: Iterable[int]) -> Iterator[int]:
        """Yield each task's number, with the process that ran it."""
        slim_worker()
        for _ in tasks:
            warm()
            gc.collect()
            gc.freeze()  # the kernels, too
            yield os.getpid()


@dataclasses.dataclass(frozen=True, slots=True)
class WriteNoise:
    """A job that writes files of noise where those of a table go, and removes them. A task is the bytes of one."""

    properties: Mapping[str, str]  #: of the FileIO
    path: str  #: of the files, but for their numbers

    def __call__(self, tasks: Iterable[int]) -> Iterator[int]:
        """Yield the size of each file."""
        slim_worker()
        schema = pa.schema([pa.field("noise", pa.binary(), metadata={b"PARQUET:field_id": b"1"})])
        for number, size in enumerate(tasks):
            path = f"{self.path}.{os.getpid()}.{number}"
            with writing(self.properties, path, schema, ()) as writer:
                for begin in range(0, max(1, size), _BLOCK_BYTES):
                    noise = os.urandom(min(_BLOCK_BYTES, max(1, size) - begin))
                    writer.write(pa.table([pa.array([noise], pa.binary())], schema))
                written = writer.close()
            remove(file_io(self.properties, path), [path])
            yield written.size


def warm() -> None:
    """Run one tiny chunk of each kind through decode, fold and Parquet."""
    for shape, tables in load():
        with tempfile.TemporaryDirectory() as folder:
            writer = DataFileWriter({}, f"file://{Path(folder)}/warm.parquet", shape.schema, ["id"])
            for table in tables:
                writer.write(table)
            writer.close()


def load() -> list[tuple[Shape, tuple[pa.Table, ...]]]:
    """Run one tiny chunk of each kind through decode and fold; return the rows of each with their shape.

    Nothing of it begins a thread, or opens a file.
    """
    found = []
    for key in ((0,), (0, 2)):  # whole numbers and texts are hashed by different kernels
        shape = _shape(key)
        messages = [_message(b"I"), _message(b"U"), _message(b"D")]
        lengths = np.array([len(message) for message in messages], np.uint32)
        applied = clone.apply_changes(shape, np.frombuffer(b"".join(messages), np.uint8), lengths)
        copied = clone.apply_copy(
            shape, b"\t".join(value.replace(b"\\", b"\\\\") for _, _, value in _COLUMNS) + b"\n"
        )
        bulk.of_one_file(copied.keys)
        found.append((shape, (applied.rows, copied.rows)))
    return found


def _shape(key: tuple[int, ...]) -> Shape:
    fields = [
        pa.field(name, typemap.arrow_type(kind), metadata={b"PARQUET:field_id": str(number).encode()})
        for number, (name, kind, _) in enumerate(_COLUMNS, 1)
    ]
    return Shape(
        source="warm-up",
        table=TableName(schema="public", name="warm_up"),
        sid=None,
        column_count=len(_COLUMNS),
        bindings=tuple(Binding(name=name, column=i, type=kind) for i, (name, kind, _) in enumerate(_COLUMNS)),
        key=key,
        seed=bytes(16),
        schema=pa.schema(fields),
    )


def _message(tag: bytes) -> bytes:
    values = b"".join(b"t" + struct.pack(">i", len(value)) + value for _, _, value in _COLUMNS)
    row = struct.pack(">h", len(_COLUMNS)) + values
    return tag + struct.pack(">I", 1) + (b"K" if tag == b"D" else b"N") + row
