"""Microseconds of CPU a row from raw bytes to Arrow columns, by stage, for the stream and for COPY.

    python -m benchmarks.micro_decode [rows]

Six columns: bigint, int, text of 40 bytes, numeric(12,2), timestamptz, bool. Best of several runs, one thread; the
first run, which compiles or loads the kernels, is not counted.
"""

from __future__ import annotations

import functools
import random
import struct
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.decode import columns, copytext, tuples
from kuvasz.model import LakeType, ValueType, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kuvasz.decode.cells import Cells

_REPEATS = 7

COLUMNS = {
    "bigint": ValueType(kind=LakeType.LONG, wire=Wire.INTEGER),
    "int": ValueType(kind=LakeType.INT, wire=Wire.INTEGER),
    "text(40)": ValueType(kind=LakeType.STRING),
    "numeric(12,2)": ValueType(kind=LakeType.DECIMAL, wire=Wire.NUMERIC, precision=12, scale=2),
    "timestamptz": ValueType(kind=LakeType.TIMESTAMPTZ, wire=Wire.TIMESTAMPTZ),
    "bool": ValueType(kind=LakeType.BOOLEAN, wire=Wire.BOOL),
}
OTHERS = {
    "float8": (ValueType(kind=LakeType.DOUBLE, wire=Wire.FLOAT), b"-12345.678901234567"),
    "date": (ValueType(kind=LakeType.DATE, wire=Wire.DATE), b"2024-02-29"),
    "uuid": (ValueType(kind=LakeType.UUID, wire=Wire.UUID), b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "bytea(32)": (ValueType(kind=LakeType.BINARY, wire=Wire.HEX), b"\\x" + b"0badcafe" * 8),
    "text(1000)": (ValueType(kind=LakeType.STRING), b"0123456789" * 100),
    "text(40) with umlauts": (ValueType(kind=LakeType.STRING), ("äöü" * 6 + "abcd").encode()),
    "int[4]": (
        ValueType(kind=LakeType.LIST, wire=Wire.ARRAY, element=ValueType(kind=LakeType.INT, wire=Wire.INTEGER)),
        b"{12345,NULL,-7,99}",
    ),
    "hstore of 2": (ValueType(kind=LakeType.MAP, wire=Wire.HSTORE), b'"colour"=>"red", "size"=>NULL'),
}


def rows(count: int) -> Iterator[tuple[bytes, ...]]:
    """Invent rows in text form."""
    rng = random.Random(7)
    for _ in range(count):
        day, clock = rng.randrange(1, 29), rng.randrange(60)
        yield (
            b"%d" % rng.randrange(10**9, 10**12),
            b"%d" % rng.randrange(-(10**6), 10**6),
            b"%040x" % rng.getrandbits(160),
            b"%d.%02d" % (rng.randrange(10**6), rng.randrange(100)),
            b"2024-03-%02d 12:%02d:56.%06d+00" % (day, clock, rng.randrange(10**6)),
            rng.choice((b"t", b"f")),
        )


def insert(values: tuple[bytes, ...]) -> bytes:
    """Build an Insert message."""
    cells = b"".join(b"t" + struct.pack(">i", len(value)) + value for value in values)
    return b"I" + struct.pack(">i", 16385) + b"N" + struct.pack(">h", len(values)) + cells


def best_us(work: Callable[[], object], count: int) -> float:
    """Return the best time of several runs, in microseconds a row."""
    work()
    spent = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return min(spent) / count * 1e6


def report_columns(cells: Cells, count: int) -> float:
    """Print each column's time and return their sum."""
    total = 0.0
    for index, (name, value_type) in enumerate(COLUMNS.items()):
        spent = best_us(functools.partial(columns.column, cells, index, value_type), count)
        print(f"  {name:22} {spent:7.4f}")
        total += spent
    return total


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    values = list(rows(count))
    messages = [insert(row) for row in values]
    lengths = np.array([len(message) for message in messages], np.uint32)
    stream = b"".join(messages)
    copy = b"".join(b"\t".join(row) + b"\n" for row in values)
    width = len(COLUMNS)
    print(f"{count} rows; stream {len(stream) / count:.0f} bytes a row, copy {len(copy) / count:.0f}; us a row")
    split_stream = best_us(lambda: tuples.split_changes(stream, lengths, width), count)
    split_copy = best_us(lambda: copytext.split_copy(copy, width), count)
    print(f"  split of the stream    {split_stream:7.4f}\n  split of COPY          {split_copy:7.4f}")
    decoded = report_columns(tuples.split_changes(stream, lengths, width).new, count)
    shuffled = np.random.default_rng(7).permutation(count).astype(np.int32)
    cells = tuples.split_changes(stream, lengths, width).new
    picked = best_us(
        lambda: [columns.column(cells, i, kind, shuffled) for i, kind in enumerate(COLUMNS.values())], count
    )
    print(f"all: stream {split_stream + decoded:.3f}, COPY {split_copy + decoded:.3f}")
    print(f"six columns of shuffled rows: {picked:.3f}\nother types, each alone:")
    long_copy = (b"x" * 1000 + b"\n") * (count // 10)
    print(f"  COPY of text(1000)     {best_us(lambda: copytext.split_copy(long_copy, 1), count // 10):7.4f}")
    for name, (value_type, value) in OTHERS.items():
        one = tuples.split_changes(insert((value,)) * count, np.full(count, len(insert((value,))), np.uint32), 1).new
        print(f"  {name:22} {best_us(functools.partial(columns.column, one, 0, value_type), count):7.4f}")


if __name__ == "__main__":
    main()
