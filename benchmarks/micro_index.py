"""Measures keys, fold and position index by themselves, on one thread.

    python benchmarks/micro_index.py [--rows 2000000] [--batch 50000] [--seconds 10] [--folder DIR]

Prints nanoseconds of CPU (user and system) per row or key, and thousands of keys per CPU second: on a machine that
is busy with other things the wall clock says little. Compilation is done, and shown, before.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from kuvasz.fold.fold import duplicates, fold
from kuvasz.fold.keys import Keys, hash_keys
from kuvasz.index import bulk
from kuvasz.index.positions import ABSENT, PositionIndex

SEED = bytes(range(16))
HI = 0x0123_4567_89AB_CDEF


def best(work: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def show(name: str, seconds: float, count: int) -> None:
    print(
        f"  {name:<58}{seconds / count * 1e9:9.1f} ns {count / seconds / 1e3:12,.0f} k/s {seconds:9.3f} s",
        flush=True,
    )


def hashed(numbers: np.ndarray) -> Keys:
    """Keys that look like hashes, one to one with numbers."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return Keys(hi=mixed ^ mixed >> np.uint64(32), lo=mixed * np.uint64(0x94D049BB133111EB))


def sequence(numbers: np.ndarray) -> Keys:
    """Keys of a single integer column."""
    return Keys(hi=np.full(len(numbers), HI, np.uint64), lo=numbers.astype(np.uint64))


def compile_all() -> None:
    start = time.perf_counter()
    keys = hash_keys([pa.array(["a"]), pa.array([1])], sid=None, seed=SEED)
    fold(np.array([ord("I")], np.uint8), keys, Keys.empty(), np.array([-1], np.int32))
    duplicates(keys)
    with tempfile.TemporaryDirectory() as folder:
        index = PositionIndex.open(Path(folder), memory_entries=1)
        for number in range(3):
            index.insert(sequence(np.arange(2) + number), number, np.arange(2, dtype=np.uint32))
            index.lookup(sequence(np.arange(3)))
        index.remap({0: (9, np.arange(2, dtype=np.int32))})
        index.checkpoint({})
        index.merge(lambda _: np.ones(1, bool))
    print(f"kernels ready after {time.perf_counter() - start:.1f} s (compiled once, then cached)")


def keys_and_fold(rows: int = 300_000) -> None:
    print(f"keys and fold, chunks of {rows:,} rows")
    columns = {
        "hash one bigint": [pa.array(np.arange(rows))],
        "hash two bigints": [pa.array(np.arange(rows)), pa.array(np.arange(rows))],
        "hash one text of 11 bytes": [pa.array([f"order-{at:05}" for at in range(rows)])],
        "hash one uuid": [pa.array([at.to_bytes(16, "big") for at in range(rows)], pa.binary(16))],
        "hash text and bigint": [pa.array([f"order-{at:05}" for at in range(rows)]), pa.array(np.arange(rows))],
    }
    for name, one in columns.items():
        show(name, best(functools.partial(hash_keys, one, sid="eu", seed=SEED)), rows)
    rng = np.random.default_rng(1)
    tag = rng.choice(np.frombuffer(b"UUUUUUUUUUUUIIIIIDDD", np.uint8), rows)
    old_row = np.where(tag == ord("D"), np.arange(rows), -1).astype(np.int32)
    for name, make, numbers in (
        ("fold, hashed keys, uniform", hashed, rng.integers(0, 2_000_000, rows)),
        ("fold, integers, uniform", sequence, rng.integers(0, 2_000_000, rows)),
        ("fold, integers, 1000 hot keys", sequence, rng.integers(0, 1000, rows)),
    ):
        keys = make(numbers)
        show(name, best(functools.partial(fold, tag, keys, keys, old_row)), rows)
    unique = hashed(np.arange(rows))
    show("duplicates, hashed keys", best(lambda: duplicates(unique)), rows)


def pieces(rows: int, size: int) -> Iterator[np.ndarray]:
    for start in range(0, rows, size):
        yield np.arange(start, min(rows, start + size), dtype=np.uint32)


def fill(index: PositionIndex, make: Callable[[np.ndarray], Keys], rows: int) -> float:
    """Insert rows in files of 2 M keys, each sorted as a bulk load would bring them; return the seconds inside."""
    total = 0.0
    for file, numbers in enumerate(pieces(rows, 2_000_000)):
        keys = make(numbers)
        order = bulk.order(keys)
        keys, positions = keys.take(order), order.astype(np.uint32)
        start = time.thread_time()
        index.insert(keys, file, positions)
        index.mark()
        total += time.thread_time() - start
    return total


def one_index(  # noqa: PLR0915 - a list of measurements
    folder: Path, make: Callable[[np.ndarray], Keys], rows: int, batch: int, seconds: float
) -> None:
    rng = np.random.default_rng(5)
    index = PositionIndex.open(folder)
    show("insert sorted, files of 2 M", fill(index, make, rows), rows)
    start = time.thread_time()
    index.checkpoint({"snapshot": 1})
    show("checkpoint (fsync not counted)", time.thread_time() - start, rows)

    def look(low: int, high: int) -> Callable[[], object]:
        batches = iter([make(rng.integers(low, high, batch)) for _ in range(21)])

        def work() -> None:
            file, _ = index.lookup(next(batches))
            if (file == ABSENT).all() != (low >= rows):
                raise SystemExit("the index gave a wrong answer")

        work()
        return work

    show(f"look up {batch:,} known keys, {len(index._now.runs)} runs", best(look(0, rows), 20), batch)
    show(f"look up {batch:,} unknown keys", best(look(rows, 4 * rows), 20), batch)
    # Upserts as the stream brings them: look up, insert, mark; uniform keys, a tenth of them new.
    count, inside_insert, inside_lookup, longest, file, most_runs = 0, 0.0, 0.0, 0.0, 1_000_000, 0
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        keys = make(np.unique(rng.integers(0, rows + rows // 10, batch)))
        keys = keys.take(rng.permutation(len(keys)))
        t0 = time.thread_time()
        index.lookup(keys)
        t1 = time.thread_time()
        index.insert(keys, file, np.arange(len(keys), dtype=np.uint32))
        index.mark()
        t2 = time.thread_time()
        inside_lookup, inside_insert = inside_lookup + t1 - t0, inside_insert + t2 - t1
        longest, count, file = max(longest, t2 - t1), count + len(keys), file + 1
        most_runs = max(most_runs, len(index._now.runs))
    show(f"insert unsorted batches of {batch:,}, merges included", inside_insert, count)
    show(f"look up before each of them, at most {most_runs} runs", inside_lookup, count)
    print(f"  longest insert with its merges {longest * 1e3:.0f} ms; heap {index.heap_bytes / 1e6:.1f} MB for")
    print(f"  {index.entries:,} entries, {index.heap_bytes / index.entries:.2f} bytes each with records in memory;")
    print(f"  disk {index.disk_bytes / index.entries:.1f} bytes an entry")
    entries = index.entries
    start = time.thread_time()
    index.merge()
    show("merge into one run", time.thread_time() - start, entries)
    index.checkpoint({"snapshot": 2})
    show(f"look up {batch:,} known keys, 1 run", best(look(0, rows), 20), batch)
    heap, disk = index.heap_bytes / index.entries, index.disk_bytes / index.entries
    print(f"  disk {disk:.1f} bytes, heap {heap:.2f} bytes an entry")
    moves = {0: (7_000_000, np.arange(2_000_000, dtype=np.int32)[::-1].copy())}
    start = time.thread_time()
    index.remap(moves)
    show("remap one file of 2 M rows", time.thread_time() - start, index.entries)
    index.close()
    start = time.thread_time()
    index = PositionIndex.open(folder)
    show("open, verified, page cache warm", time.thread_time() - start, index.entries)
    index.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description="measure keys, fold and position index")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=10, help="of the stream of upserts")
    parser.add_argument("--folder", type=Path, default=None, help="where the index goes (default: a temporary one)")
    given = parser.parse_args()
    compile_all()
    keys_and_fold()
    for name, make in (("hashed keys", hashed), ("integer keys", sequence)):
        print(f"index of {given.rows:,} {name}")
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            one_index(Path(folder), make, given.rows, given.batch, given.seconds)


if __name__ == "__main__":
    main()
