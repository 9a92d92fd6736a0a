"""Bytes of an enemy, or of a broken network, in every parser: an error of ours or a value, and never a byte beyond.

The compiled kernels do not check bounds. So their input lies at the very end of a page that is followed by one which
nobody may touch, or at the very beginning of one that follows such: what reads beyond it ends the process.
That is why the parsers run in a process of their own here.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import random
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kuvasz.decode import columns, copytext, messages, tuples
from kuvasz.decode.cells import NULL, Cells
from kuvasz.errors import DecodeError, KuvaszError
from kuvasz.evolve import column_notes
from kuvasz.lake.files import puffin
from kuvasz.lake.format import source_positions
from kuvasz.model import PgType, Relation
from kuvasz.route.assembler import Assembler
from kuvasz.source.copy_out import unframe
from tests.support import wires

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)

TYPES = {
    "bool": wires.BOOLEAN, "int": wires.INT, "long": wires.LONG, "float": wires.FLOAT, "double": wires.DOUBLE,
    "decimal": wires.decimal(38, 6), "small decimal": wires.decimal(9, 2), "string": wires.STRING,
    "bytea": wires.BYTEA, "geometry": wires.GEOMETRY, "date": wires.DATE, "timestamp": wires.TIMESTAMP,
    "timestamptz": wires.TIMESTAMPTZ, "uuid": wires.UUID, "hstore": wires.HSTORE, "vector": wires.VECTOR,
    "int[]": wires.array(wires.INT), "text[]": wires.array(wires.STRING),
    "timestamptz[]": wires.array(wires.TIMESTAMPTZ), "numeric[]": wires.array(wires.decimal(10, 2)),
}  # fmt: skip

SAMPLES = [
    b"t", b"-2147483648", b"9223372036854775807", b"1e308", b"-Infinity", b"NaN", b"0.000001",
    b"-12345678901234567890.5",
    b"2024-02-29", b"0044-03-15 BC", b"infinity", b"2024-02-29 23:59:60.999999+05:30:15", b"10000-01-01 00:00:00",
    b"\\x00ff", b"00FF", b"6ba7b810-9dad-11d1-80b4-00c04fd430c8", b'"a"=>"1", "b"=>NULL', b"[1,2.5]", b"{1,NULL}",
    b'{"a b","\\"",NULL,""}', b"{{1,2},{3,4}}", b"[2:3]={1,2}", b"{}", b"\xc3\xa9\xff",
]  # fmt: skip


class Guarded:
    """Memory with untouchable pages on both sides."""

    def __init__(self, pages: int = 2) -> None:
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        self._bytes = pages * _PAGE
        whole = np.frombuffer(self._map, np.uint8)
        self._inner = whole[_PAGE : _PAGE + self._bytes]
        for page in (0, pages + 1):
            address = ctypes.c_void_p(whole.ctypes.data + page * _PAGE)
            assert _libc.mprotect(address, ctypes.c_size_t(_PAGE), 0) == 0

    def put(self, data: bytes, *, at_end: bool) -> np.ndarray:
        """Return the bytes where one step further is forbidden."""
        data = data[: self._bytes]
        place = self._inner[self._bytes - len(data) :] if at_end else self._inner[: len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        view = place.view()
        view.flags.writeable = False
        return view


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Cut, changed, doubled: a little wrong gets further into a parser than noise."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        action = chance.randrange(5)
        if action == 0:
            changed[at] = chance.choice(b'\x00\x7f\xff\\"{},:=-+. 09tn\n\t')
        elif action == 1:
            del changed[at:]
        elif action == 2:
            del changed[at]
        elif action == 3:
            changed[at:at] = changed[at:][: chance.randrange(8)]
        else:
            changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cells(memory: Guarded, values: Sequence[bytes | None], chance: random.Random) -> Cells:
    data, start, length = b"", [], []
    for value in values:
        start.append(len(data))
        length.append(NULL if value is None else len(value))
        data += value or b""
    array = memory.put(data, at_end=chance.random() < 0.7)
    shaped = np.array([start], np.int64).reshape(1, -1), np.array([length], np.int32).reshape(1, -1)
    return Cells(data=array, start=shaped[0], length=shaped[1])


class _One:
    def worker(self, source: str, relation: Relation) -> int:
        return 0


def _types(oids: list[int]) -> dict[int, PgType]:
    return {}


RELATION = bytes.fromhex(
    "52 00004001 7075626c696300 6974656d7300 64 0002 01 696400 00000014 ffffffff 00 6e00 00000017 ffffffff"
)


def _frame(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


STREAM = [
    _frame(b"B" + (5000).to_bytes(8, "big") + bytes(8) + (700).to_bytes(4, "big")), _frame(RELATION),
    _frame(wires.message("I", [b"1", b"2"])), _frame(wires.message("U", [b"1", None], [b"0", None], "K")),
    _frame(wires.message("D", old=[b"1", None], old_tag="K")),
    _frame(b"T" + (1).to_bytes(4, "big") + b"\x00" + (0x4001).to_bytes(4, "big")),
    _frame(b"C\x00" + (5000).to_bytes(8, "big") + (5008).to_bytes(8, "big") + bytes(8)),
    b"k" + (6000).to_bytes(8, "big") + bytes(8) + b"\x01",
]  # fmt: skip


def parse_stream(memory: Guarded, chance: random.Random) -> None:
    parts = [mutated(part, chance) if chance.random() < 0.2 else part for part in STREAM]
    if chance.random() < 0.3:
        chance.shuffle(parts)
    lengths = np.array([len(part) for part in parts], np.uint32)
    if chance.random() < 0.1:
        lengths[chance.randrange(len(lengths))] = chance.randrange(2**32)
    assembler = Assembler("fuzz", _One(), _types, chance.choice([1, 64 << 20]))
    assembler.feed(memory.put(b"".join(parts), at_end=chance.random() < 0.7), lengths)


def parse_tuples(memory: Guarded, chance: random.Random) -> None:
    rows = [
        wires.message("I", [b"1", None, b"xyz"]), wires.message("U", [b"1", b"", b"y"], [b"2", None, None], "K"),
        wires.message("D", old=[b"1", b"", None], old_tag="O"),
    ]  # fmt: skip
    rows = [mutated(row, chance) if chance.random() < 0.4 else row for row in rows]
    lengths = np.array([len(row) for row in rows], np.uint32)
    tuples.split_changes(memory.put(b"".join(rows), at_end=True), lengths, chance.choice([1, 3, 3, 3, 1600]))


def parse_copy(memory: Guarded, chance: random.Random) -> None:
    lines = b"1\t\\N\ta\\tb\\\\\n-2\t\\101\\x41\t\n" * chance.randrange(1, 5)
    found = copytext.split_copy(memory.put(mutated(lines, chance), at_end=chance.random() < 0.7), 3)
    for index in range(3):
        found.strip(index)


def parse_column(memory: Guarded, chance: random.Random) -> None:
    name = chance.choice(list(TYPES))
    values = [None if chance.random() < 0.1 else mutated(chance.choice(SAMPLES), chance)
              for _ in range(chance.randrange(1, 6))]  # fmt: skip
    policy = chance.choice(["error", "null", "clamp"])
    found = columns.column(cells(memory, values, chance), 0, TYPES[name], out_of_range=policy)
    found.validate(full=True)


def parse_frames(memory: Guarded, chance: random.Random) -> None:
    frames = (b"d\x00\x00\x00\x081\t2\n" + b"d\x00\x00\x00\x04") * 3 + b"Z\x00\x00\x00\x05I"
    source = memory.put(mutated(frames, chance), at_end=True)
    target = np.empty(len(source) + 64, np.uint8)
    _, at, whole, missing, _ = unframe(source, target, chance.randrange(32), 0, chance.choice([0, 0, 3, 2**31 - 5]))
    assert 0 <= whole <= at <= len(target)
    if missing < 0:
        raise DecodeError("a length that cannot be")


def parse_rest(memory: Guarded, chance: random.Random) -> None:
    kind = chance.randrange(4)
    if kind == 0:
        part = chance.choice(STREAM)
        messages.parse(mutated(part[25:] if part[:1] == b"w" else part, chance))
    elif kind == 1:
        content, (vector,) = puffin.encode([("file", puffin.BitMap64([1, 2**33, 70000]))])
        puffin.decode(mutated(content[vector.offset : vector.offset + vector.size], chance))
    elif kind == 2:
        json_of_before = '{"lsn": "0/1A2B", "commit_lsn": "0/1A00", "rows": 3, "system_id": "7361"}'
        text = chance.choice([json_of_before, "0/1A2B;17;3;fxgt;81n1rk5cja;1;;5oh"])
        source_positions.parse({"kuvasz.position.a": mutated(text.encode(), chance).decode(errors="replace")}, "t")
    else:
        shape = '{"attributes":2,"columns":[[1,"id",23,-1,1],[2,"mood",-1,-1,2,{"facts":0}]]}'
        if chance.randrange(2):
            shape = mutated(shape.encode(), chance).decode(errors="replace")
        digest = hashlib.sha256(shape.encode(errors="replace")).hexdigest()[:12]
        own = ";16384;;;16389,16388,16388;742*2;16500;a1+b2;0/16B3748,38,744+745,16387"
        text = chance.choice(['{"oid": 16384, "columns": {"id": 1, "name": 2}}', digest + own])
        note = mutated(text.encode(), chance).decode(errors="replace")
        column_notes.parse({"kuvasz.columns.a": note, f"kuvasz.shape.{digest}": shape}, "t")


PARSERS: dict[str, Callable[[Guarded, random.Random], None]] = {
    "stream": parse_stream, "tuples": parse_tuples, "copy": parse_copy, "column": parse_column,
    "frames": parse_frames, "rest": parse_rest,
}  # fmt: skip


def attack(name: str, seed: int, rounds: int) -> None:
    """Run one parser over many inputs; what is no error of ours is told and ends it."""
    memory = Guarded()
    outcomes = {"fine": 0, "refused": 0}
    for number in range(rounds):
        chance = random.Random(f"{name} {seed} {number}")  # noqa: S311
        try:
            PARSERS[name](memory, chance)
            outcomes["fine"] += 1
        except (KuvaszError, columns.ValueRefused):
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"parser {name}, seed {seed}, round {number}: {error!r}") from error
    print(json.dumps(outcomes))


@pytest.mark.parametrize("name", PARSERS)
def test_no_bytes_crash_hang_or_lead_beyond_them(name: str) -> None:
    seed = random.randrange(10**6)  # noqa: S311
    code = f"from tests.integration.test_hostile_bytes import attack; attack({name!r}, {seed}, 4000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, (
        f"seed {seed}, ended with {done.returncode}: {done.stdout[-300:]}\n{done.stderr[-1500:]}"
    )
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes["refused"] > 20, "the wrong is refused"
    assert outcomes["fine"] > 20, "the right passes"
