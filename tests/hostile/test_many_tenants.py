"""Hundreds of sources in one table, of which every seventh is dead, silent, locked, garbled or forbidden.

`make hostile` has 500 of them (`SOURCES`). The lag of the good ones is measured alone and then beside the bad ones,
in the same process, and printed. A machine that others keep busy makes something of each measurement, and not the
same of all: most of those beside the bad ones have to be as good as the one in the middle of those alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import group
from tests.support.liar import LIES, liar
from tests.support.oracle import source_rows
from tests.support.postgres import Database, Server, create_database, new_data_folder
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SOURCES = int(os.environ.get("SOURCES") or 50)
#: Of 500.
SHARES = {"dead": 50, "silent": 10, "locked": 10, "garbled": 5, "forbidden": 1}
#: Each lie is told, however few there are.
BAD = {kind: max(1, round(SOURCES * share / 500)) for kind, share in SHARES.items()} | {
    "garbled": max(len(LIES), SOURCES // 100)
}
GOOD = SOURCES - sum(BAD.values())

#: Databases of one server: each has a walsender that reads the WAL of all of them.
OF_ONE_SERVER = 60
ROUNDS = int(os.environ.get("ROUNDS") or 3)
#: Seconds between two writes; everybody gets one in turn.
PAUSE_S = 0.05
PATIENCE_S = 900.0 + 4 * SOURCES

#: How many times as long p99 may be beside the bad ones, and for how much longer in any case: a commit and a look.
SLOWER, GRACE_S = 1.5, 0.5
#: Measurements alone, of which the middle one counts, and beside the bad ones, of which most have to be so.
ALONE, TRIES = 3, 5
#: Part of its memory that a process may take more, for sources that are told of and tried again; and from then on.
MORE, STILL_MORE = 1 / 2, 1 / 4
#: And megabytes, for rows without end: 128 MB of such an answer are taken (`conninfo.MOST_BYTES`), some at a time.
ENDLESS_MB = 512

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, n int)"
#: What `status` says of each kind of bad ones, and of each lie.
REASONS = {
    "dead": r"cannot connect: .*Connection refused",
    "silent": r"cannot connect: connection timeout expired",
    "locked": r"pid \d+ \(postgres",
    "forbidden": r"table shop\.refused: Failed to create file",
    "noise": r"expected authentication request from server, but received",
    "huge": r"received invalid authentication request",
    "refusing": r"\\x1b\[2Jall is well.*\\u202eno",
    "forging": r'insufficient data in "T" message',
    "endless": r"server closed the connection unexpectedly",
    "overflowing": r"its answer has more than 128 MB, and no end",
}

#: A server that is only asked for what is wrong with it has ten seconds to say so.
QUICK = "sslmode=disable&connect_timeout=10"


@contextlib.contextmanager
def servers(databases: int) -> Iterator[list[EmbeddedPostgres]]:
    settings = {"max_replication_slots": "140", "max_wal_senders": "140", "max_connections": "300",
                "shared_buffers": "32MB"}  # fmt: skip
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Server(new_data_folder(), version=18, settings=settings))
            for _ in range(-(-databases // OF_ONE_SERVER))
        ]


def filled(server: EmbeddedPostgres) -> Database:
    created = create_database(server)
    created.execute(f"{ITEMS}; INSERT INTO items VALUES (1, 0), (2, 0)")
    return created


@dataclasses.dataclass
class Lag:
    """Seconds from a commit until it is in the lake, of many commits of many sources."""

    process: Process
    good: Mapping[str | None, Database]
    next_id: int = 100

    def measure(self, chosen: random.Random) -> list[float]:
        """Write to all of them in turn, some times, and wait until the lake has it."""
        due: dict[str, list[tuple[int, float]]] = {f"shop_{sid}": [] for sid in self.good}
        found: list[float] = []
        lock, is_over = threading.Lock(), threading.Event()

        def look() -> None:
            while not (is_over.is_set() and not any(due.values())):
                positions = self.process.positions("items")
                now = time.monotonic()
                with lock:
                    for source, written in due.items():
                        seen = [one for one in written if positions[source].lsn > one[0]]
                        found.extend(now - at for _, at in seen)
                        written[:] = written[len(seen) :]
                time.sleep(0.1)

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        for _ in range(ROUNDS):
            for sid in chosen.sample(list(self.good), len(self.good)):
                before, at = self._write(self.good[sid])
                with lock:
                    due[f"shop_{sid}"].append((before, at))
                time.sleep(PAUSE_S)
        is_over.set()
        late = lambda: f"all of it is in the lake: {[s for s, w in due.items() if w][:5]} {self.process.report()}"  # noqa: E731
        wait_until(lambda: not looker.is_alive(), late, PATIENCE_S)
        return sorted(found)

    def _write(self, database: Database) -> tuple[int, float]:
        """Return an LSN before the end of the transaction, and when it was committed."""
        self.next_id += 1
        with database.connect() as session:
            session.execute("INSERT INTO items VALUES (%s, 1)", (self.next_id,))
            session.execute("UPDATE items SET n = n + 1 WHERE id = 1")
            ((lsn,),) = session.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchall()
            session.commit()
            return int(lsn), time.monotonic()


def p(lags: list[float], share: float) -> float:
    return lags[min(len(lags) - 1, int(len(lags) * share))]


def memory(process: Process) -> int:
    """Megabytes of the process, its JVM and its workers."""
    found = 0
    for one in [psutil.Process(process.pid), *process.helpers()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += one.memory_info().rss
    return found >> 20


def reasons(process: Process) -> dict[str, str]:
    """What `status` says is wrong, by source."""
    answer = process.run("status", "--json")
    try:
        shown = json.loads(answer.stdout)
    except ValueError:
        return {}
    return {source["source"]: told for source in shown["sources"] if (told := _reason(source))}


def named(process: Process, expected: set[str]) -> dict[str, str]:
    """Wait until all of them have the reason that they should, and return what `status` says is wrong."""
    found: dict[str, str] = {}

    def is_named() -> bool:
        found.clear()
        found.update(reasons(process))
        return not lacking()

    def lacking() -> dict[str, str]:
        told = {name: found.get(name, "") for name in expected}
        return {name: text for name, text in told.items() if not re.search(REASONS[kind_of(name)], text)}

    wait_until(is_named, lambda: f"each has its reason: {dict(sorted(lacking().items())[:20])}", PATIENCE_S)
    return found


def kind_of(name: str) -> str:
    """The kind of a bad one, or its lie."""
    (found,) = re.findall(rf"_({'|'.join(set(SHARES) - {'garbled'})})\d+$|_garbled\d+(\w+)$", name)
    return found[0] or found[1]


def _reason(source: Mapping[str, Any]) -> str:
    told = [source["error"], *(one[name] for one in source["tables"] for name in ("error", "waits_for"))]
    return "; ".join(str(one) for one in told if one)


@contextlib.contextmanager
def bad_urls(locked: list[Database]) -> Iterator[dict[str, str]]:
    """The urls of those that do not come, by sid; what they are is in its name."""
    with contextlib.ExitStack() as stack:
        gone = stack.enter_context(liar())
        gone.close()  # its port answers nobody
        found = {f"dead{n}": f"postgresql://x@127.0.0.1:{gone.port}/x{n}?{QUICK}" for n in range(BAD["dead"])}
        for n in range(BAD["silent"]):
            found[f"silent{n}"] = f"postgresql://x@127.0.0.1:{stack.enter_context(liar()).port}/x?{QUICK}"
        for n in range(BAD["garbled"]):
            told = sorted(LIES)[n % len(LIES)]
            server = stack.enter_context(liar(LIES[told]))
            found[f"garbled{n}{told}"] = f"postgresql://x@127.0.0.1:{server.port}/x?{QUICK}"
        for n, database in enumerate(locked):
            found[f"locked{n}"] = database.url
        yield found


@pytest.mark.timeout(3600 * 3)
def test_one_in_seven_is_bad_and_the_others_do_not_notice(new_process: Callable[..., Process]) -> None:
    seed = random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}: {GOOD} good ones, and {BAD}", flush=True)
    chosen = random.Random(seed)  # noqa: S311
    with servers(GOOD) as homes, servers(BAD["locked"] + BAD["forbidden"]) as (other, *_):
        good: dict[str | None, Database] = {f"good{n}": filled(homes[n % len(homes)]) for n in range(GOOD)}
        locked = [filled(other) for _ in range(BAD["locked"])]
        forbidden: dict[str | None, Database] = {f"forbidden{n}": filled(homes[0]) for n in range(BAD["forbidden"])}
        process = new_process(group(good, {"items": None}), address="127.0.0.1:0")
        begin = time.monotonic()
        process.start()
        process.wait_until(lambda: len(process.found("copied")) >= GOOD, "all are copied", PATIENCE_S)
        print(f"copied in {time.monotonic() - begin:.0f} s", flush=True)
        lag = Lag(process, good)
        lag.measure(chosen)  # what is slow once is no part of it
        alone = [_shown("alone", lag.measure(chosen), memory(process)) for _ in range(ALONE)]
        p50, p99 = (statistics.median(p(one, share) for one in alone) for share in (0.5, 0.99))
        memory_alone = memory(process)

        # What the catalog's store refuses: there is a file where its folder would be.
        (process.folder / "wh" / "shop" / "refused").touch()
        with bad_urls(locked) as urls, locked[0].connect() as old:
            old.execute("INSERT INTO items VALUES (9, 9)")
            (mine,) = group(good, {"items": None})
            mine["urls"] += [{"url": url, "sid": sid} for sid, url in urls.items()]
            (theirs,) = group(forbidden, {"items": {"target": "refused"}}, name="other")
            process.write_map([mine, theirs])
            done = process.run("reload")
            assert done.returncode == 0, done.stderr
            expected = {*(f"shop_{sid}" for sid in urls), *(f"other_{sid}" for sid in forbidden)}
            _shown("while the bad ones arrive", lag.measure(chosen), memory(process))
            named(process, expected)
            ratios: list[float] = []
            sizes: list[int] = []
            for _ in range(TRIES):
                beside = lag.measure(chosen)
                sizes.append(memory(process))
                _shown("beside them", beside, sizes[-1])
                ratios.append(max(0.0, p(beside, 0.99) - GRACE_S) / p99)
                print(f"p99 ratio {p(beside, 0.99) / p99:.2f}, p50 ratio {p(beside, 0.5) / p50:.2f},"
                      f" memory {sizes[-1] - memory_alone:+} MB", flush=True)  # fmt: skip
            assert statistics.median(ratios) <= SLOWER, f"p99 is {ratios} times as long"
            assert statistics.median(sizes) <= memory_alone * (1 + MORE) + ENDLESS_MB, (memory_alone, sizes)
            assert statistics.median(sizes[-3:]) <= sizes[0] * (1 + STILL_MORE), f"it goes on growing: {sizes}"
            found = named(process, expected)
            for kind in BAD:
                name = next(name for name in sorted(found) if kind in name)
                print(f"  {name}: {found[name].splitlines()[0][:150]}", flush=True)
            assert not [name for name in found if "good" in name], found
            assert process.is_running, process.report()
            rows = [source_rows(database.url, "items", sid=sid) for sid, database in good.items()]
            process.assert_equal("items", *rows, key=("sid", "id"))
        process.terminate()


def _shown(when: str, lags: list[float], megabytes: int) -> list[float]:
    print(f"{when}: {len(lags)} commits, p50 {statistics.median(lags):.2f} s, p99 {p(lags, 0.99):.2f} s,"
          f" most {lags[-1]:.2f} s, memory {megabytes} MB", flush=True)  # fmt: skip
    return lags
