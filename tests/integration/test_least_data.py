"""Where values can be found that the lake is not to show: planted, and looked for in every file of kuvasz."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.lake.iceberg.engine import spool_folder
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.kept_files import KeptFiles, words_at
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import lake_counts, wait_let_go
from tests.support.verify_bench import under_load
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU, PEOPLE = "shop_eu", "shop.people"

#: What no file may show, by what the map says of it. Each value begins with its word and is like nothing else.
EXCLUDED, REDACTED, PSEUDONYM, OUTSIDE = (f"Zq7{word}x9V" for word in ("Excluded", "Redacted", "Hmac", "Outside"))
PLAIN = "Zq7Plainx9V"
WORDS = (EXCLUDED, REDACTED, PSEUDONYM, OUTSIDE, PLAIN)
ENTRY = {
    "exclude": ["secret"],
    "mask": {"card": "redact", "mail": "hmac"},
    "filter": "region <> 'out'",
}


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


def found(path: Path) -> set[str]:
    """Return which words are at or below a path."""
    return words_at(path, *WORDS)


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


def spark_folders(lake_folder: LakeFolder) -> list[Path]:
    """Return where Spark has files: what PySpark hands to it, and blocks."""
    blocks = lake_folder.session._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    return [Path(lake_folder.session.sparkContext._temp_dir), *map(Path, blocks.localDirsString())]


def in_temporary_files() -> set[str]:
    """Return which words are in files that anybody has left where temporary ones go."""
    loose = [file for file in Path(tempfile.gettempdir()).iterdir() if file.is_file()]
    return {word for file in loose for word in found(file)}


def live(database: Database, lake_folder: LakeFolder, entry: dict, **pipeline_options: str) -> dict[str, set[str]]:
    """Have kuvasz do all it does with planted values; return what was found where."""
    seen: dict[str, set[str]] = {}
    fill(database)
    if "row_filter" in entry:
        database.execute("ALTER TABLE people REPLICA IDENTITY FULL")
    config = lake_folder.config(
        group({"eu": database}, {"people": entry}), memory="1MB", transaction_spill_bytes="64kB",
        mask_secret="a secret of sixteen characters", **pipeline_options,
    )  # fmt: skip
    state, folder = lake_folder.folder / "state", Path(spool_folder(config))
    work_folders = spark_folders(lake_folder)
    with KeptFiles(folder) as spooled, KeptFiles(*work_folders) as worked:
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
        assert spooled.names()
        seen["spool"] = spooled.words(*WORDS)
        seen["Spark, meanwhile"] = worked.words(*WORDS)
    seen["state"] = found(state)
    seen["lake"] = found(lake_folder.folder / "wh")
    seen["catalog"] = found(lake_folder.folder / "catalog.db")
    seen["Spark"] = {word for folder in work_folders for word in found(folder)}
    seen["temporary files"] = in_temporary_files()
    return seen


SEALED = {"seal_secret": "another one of as many characters"}


@pytest.mark.parametrize(("entry", "options", "parked"), [
    (ENTRY, {}, {OUTSIDE, PLAIN}),
    ({**ENTRY, "column_list": True}, SEALED, set()),
    # Slow: it finds what the first one does, which is what it shows.
    pytest.param({**ENTRY, "row_filter": True}, {}, {OUTSIDE, PLAIN}, marks=pytest.mark.slow),
])  # fmt: skip
def test_where_values_are_that_the_lake_is_not_to_show(
    database: Database, lake_folder: LakeFolder, log_file: Path, entry: dict, options: dict, parked: set[str]
) -> None:
    seen = live(database, lake_folder, entry, **options)
    seen["log"] = found(log_file)
    if "row_filter" in entry and database.server.version >= 15:
        parked = parked - {OUTSIDE}
    assert seen.pop("parking") == parked
    assert seen.pop("spool") == set()
    assert seen.pop("rows") == {PLAIN}
    assert {where: words - {PLAIN} for where, words in seen.items() if words - {PLAIN}} == {}


#: What `set` makes of a masked column is masked; what it looks at cannot be masked before that.
COMPUTED = {
    "set": {"id": "id", "card": "lower(card)", "mail": "concat(mail, '!')", "name": "name", "at": "at"},
    "mask": {"card": "redact", "mail": "hmac"}, "filter": "region <> 'out'",
}  # fmt: skip


@pytest.mark.slow
def test_where_values_are_that_expressions_look_at(
    database: Database, lake_folder: LakeFolder, log_file: Path
) -> None:
    """With whole old rows, while the table is in error, copied again, compared, mended, and rows are rejected."""
    for table in ("people", "rejected"):
        fill(database, table)
        database.execute(
            f"ALTER TABLE {table} REPLICA IDENTITY FULL; ALTER TABLE {table} ADD COLUMN at timestamp DEFAULT now()"
        )
    tables = {"people": COMPUTED, "rejected": {**COMPUTED, "on_bad_value": "reject"}}
    config = lake_folder.config(
        group({"eu": database}, tables), mask_secret="a secret of sixteen characters", lake={"about": "_kuvasz"},
        **SEALED,
    )  # fmt: skip
    state, looked_at = lake_folder.folder / "state", Path(spool_folder(config))
    bad = f"INSERT INTO {{}} VALUES (9999, '{EXCLUDED}', '{REDACTED}', '{PSEUDONYM}', 'in', '{PLAIN}', 'infinity')"
    with KeptFiles(looked_at, state, *spark_folders(lake_folder)) as kept:
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            for table in tables:
                change(database, 1, table)
                database.execute(bad.format(table))
            pipeline.wait_state(EU, PEOPLE, State.ERROR)
            change(database, 2)
            wait_let_go(database)
            (log,) = state.rglob("*.log")
            assert log.stat().st_size > 2000
            assert found(state) == set()
            pipeline.die()
            pipeline.error = None  # that of a failpoint
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state(EU, PEOPLE, State.ERROR)
            change(database, 3)
            wait_let_go(database)
            assert found(state) == set()
            database.execute("DELETE FROM people WHERE id = 9999")
            pipeline.tell("resync", PEOPLE, EU)
            pipeline.wait_streaming()
            pipeline.wait_applied(database)
            lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.people WHERE id = 204")
            update = f"UPDATE people SET card = '{REDACTED}v', name = '{PLAIN}' WHERE id % 5 = 1"
            stop, writer = under_load(database, lambda number: [update] if number % 50 == 0 else [])
            try:
                (report,) = verify.reports(config, table=PEOPLE, is_fixing=True, session=lake_folder.session)
            finally:
                stop.set()
                writer.join()
            assert (report.error, report.differences, report.left) == ("", 1, 0)
            pipeline.wait_applied(database)
            assert lake_counts(pipeline, "people", f"name LIKE '{PLAIN}%'") > 0
        assert kept.words(*WORDS) == set(), kept.names()
    assert words_at(lake_folder.folder / "wh", *WORDS) == {PLAIN}
    assert found(lake_folder.folder / "catalog.db") | found(log_file) | in_temporary_files() <= {PLAIN}
