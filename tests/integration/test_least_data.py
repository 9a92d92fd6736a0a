"""Where values can be found that the lake is not to show: planted, and looked for in every file of kuvasz."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kuvasz.lake.iceberg.engine import spool_folder
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import wait_let_go
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU, PEOPLE = "shop_eu", "shop.people"

#: What no file may show, by what the map says of it. Each value begins with its word and is like nothing else.
EXCLUDED, REDACTED, PSEUDONYM, OUTSIDE = (f"Zq7{word}x9V" for word in ("Excluded", "Redacted", "Hmac", "Outside"))
PLAIN = "Zq7Plainx9V"
ENTRY = {
    "exclude": ["secret"],
    "mask": {"card": "redact", "mail": "hmac"},
    "filter": "region <> 'out'",
}


class Spooled:
    """Keeps every file of the spool, which live for a moment, under another name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = Path(tempfile.mkdtemp(dir=folder.parent))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            with contextlib.suppress(OSError):
                for file in os.scandir(self._folder):
                    with contextlib.suppress(OSError):
                        os.link(file.path, self._kept / file.name)

    def __enter__(self) -> Path:
        self._thread.start()
        return self._kept

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        shutil.rmtree(self._kept)


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """Everything that kuvasz says, down to what is for debugging."""
    handler = logging.FileHandler(tmp_path / "kuvasz.log")
    logger = logging.getLogger("kuvasz")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield tmp_path / "kuvasz.log"
    logger.removeHandler(handler)
    logger.setLevel(level)


def texts(path: Path) -> Iterator[bytes]:
    """Yield the contents of every file at or below a path, of Parquet files as they are read."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            yield file.read_bytes()
            if file.suffix == ".parquet":
                yield repr(pq.read_table(file, partitioning=None).to_pylist()).encode()


def found(path: Path) -> set[str]:
    """Return which words are at or below a path."""
    words = (EXCLUDED, REDACTED, PSEUDONYM, OUTSIDE, PLAIN)
    return {word for text in texts(path) for word in words if word.encode() in text}


def fill(database: Database, table: str = "people") -> None:
    database.execute(
        f"CREATE TABLE {table} (id int PRIMARY KEY, secret text, card text, mail text, region text, name text)"
    )
    change(database, 0, table)


def change(database: Database, number: int, table: str = "people") -> None:
    """Write rows whose values are planted, by every operation."""
    for place in range(number * 100, number * 100 + 20):
        outside = place % 2
        mark = OUTSIDE if outside else PLAIN
        database.execute(
            f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s)",
            (place, f"{EXCLUDED}{place}", f"{REDACTED}{place}", f"{PSEUDONYM}{place}",
             "out" if outside else "in", f"{mark}{place}"),
        )  # fmt: skip
    database.execute(f"UPDATE {table} SET secret = secret || 'u', card = card || 'u' WHERE id % 3 = 0")
    database.execute(f"DELETE FROM {table} WHERE id % 7 = 6")


def live(database: Database, lake_folder: LakeFolder, entry: dict) -> dict[str, set[str]]:
    """Have kuvasz do all it does with planted values; return what was found where."""
    seen: dict[str, set[str]] = {}
    fill(database)
    config = lake_folder.config(
        group({"eu": database}, {"people": entry}), memory="1MB", transaction_spill_bytes="64kB",
        mask_secret="a secret of sixteen characters",
    )  # fmt: skip
    state, folder = lake_folder.folder / "state", Path(spool_folder(config))
    with Spooled(folder) as spooled:
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            change(database, 1)
            pipeline.wait_applied(database)
            pipeline.tell("pause", PEOPLE, EU)
            wait_let_go(database)
            change(database, 2)
            wait_let_go(database)
            seen["parking"] = found(state / "parked")
            pipeline.die()
            pipeline.error = None  # that of a failpoint
        seen["state, dead"] = found(state) - seen["parking"]
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state(EU, PEOPLE, State.PAUSED)
            pipeline.tell("resume", PEOPLE, EU)
            pipeline.wait_streaming()
            wait_until(lambda: not list(state.rglob("*.log")), "what was parked is applied")
            change(database, 3)
            pipeline.wait_applied(database)
            pipeline.app.lake.maintenance.run(PEOPLE, full=True)
            change(database, 4)
            pipeline.wait_applied(database)
            seen["rows"] = {word for row in pipeline.rows("people") for word in (PLAIN,) if word in repr(row)}
        seen["spool"] = found(spooled)
    seen["state"] = found(state)
    seen["lake"] = found(lake_folder.folder / "wh")
    seen["catalog"] = found(lake_folder.folder / "catalog.db")
    manager = lake_folder.session._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    seen["Spark"] = {word for folder in manager.localDirsString() for word in found(Path(folder))}
    loose = [file for file in Path(tempfile.gettempdir()).iterdir() if file.is_file()]
    seen["temporary files"] = {word for file in loose for word in found(file)}
    return seen


@pytest.mark.parametrize("entry", [ENTRY, {**ENTRY, "column_list": True}])
def test_where_values_are_that_the_lake_is_not_to_show(
    database: Database, lake_folder: LakeFolder, log_file: Path, entry: dict
) -> None:
    seen = live(database, lake_folder, entry)
    seen["log"] = found(log_file)
    passing = {EXCLUDED, REDACTED, PSEUDONYM, OUTSIDE, PLAIN}  # as the source sent them, see docs/security.md
    if "column_list" in entry and database.server.version >= 15:
        passing -= {EXCLUDED}
    assert seen.pop("parking") == {OUTSIDE, PLAIN}
    assert seen.pop("spool") == passing
    assert seen.pop("rows") == {PLAIN}
    assert {where: words - {PLAIN} for where, words in seen.items() if words - {PLAIN}} == {}
