"""A tenant of real sources erased from tables of all types: not a byte of its rows is left, and all others' are."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from pyiceberg.catalog import load_catalog

from kuvasz import failpoints
from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config import load
from kuvasz.errors import ConfigError, LakeError, StateError, StateTaken
from kuvasz.lake.about import about
from kuvasz.lake.iceberg.engine import spool_folder
from kuvasz.lake.java.signing_key import SigningKey
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.state.store import state_of
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.verbs.sources import erased_state, erasing, row_erasing
from kuvasz.verbs.sources.row_erasing import ErasureRequest
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.opened_files import holding
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Stands in every row of the tenant, in its key too, and nowhere else.
PLANTED = "Quittenmus"

TABLES: dict[str, dict[str, Any] | None] = {
    "items": None,
    "parted": {"partition_by": ["sid"]},
    "prices": {"type": "history"},
    "kept": {"type": "append"},
    "log": {"type": "changelog", "partition_by": ["sid"]},
    "bag": None,
    "late": {"initial": "skip"},
    "odd": {"on_bad_value": "reject"},
}
#: Of which one row is erased, beside one of a history.
ONE_ROW = ("kept", "log", "bag")
DE = SourceSelection(sid="de")


class World:
    """Two sources in one lake, the rows of which lie in the same files.

    Args:
        lake: The lake.
        de: The source that leaves.
        fr: The one that stays.
    """

    def __init__(self, lake: LakeFolder, de: Database, fr: Database) -> None:
        self.lake, self._de, self.fr = lake, de, fr
        for one, text in ((de, PLANTED), (fr, "Mirabelle")):
            for name in TABLES:
                key = "" if name == "bag" else ", PRIMARY KEY (a, b)"
                one.execute(f"CREATE TABLE {name} (a int, b text, n int{key})")
                one.execute(f"INSERT INTO {name} SELECT i, '{text}-' || i, 0 FROM generate_series(1, 50) i")
            one.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
            one.execute("ALTER TABLE odd ADD at timestamp")  # of rows that are inserted later on it does not fit
            one.execute("ALTER TABLE odd ALTER at SET DEFAULT 'infinity'")
        self.config = lake.config(group({"de": de, "fr": fr}, TABLES), lake={"about": "_kuvasz"})

    def run(self) -> None:
        """Have all that makes and moves rows happen."""
        with Pipeline(self.config, self.lake) as pipeline:
            pipeline.wait_streaming()
            for number in range(2):
                for one, text in ((self._de, PLANTED), (self.fr, "Mirabelle")):
                    for name in TABLES:
                        one.execute(f"UPDATE {name} SET n = n + 1, b = b || 'x' WHERE a % 5 = {number}")
                        one.execute(f"INSERT INTO {name} VALUES ({100 + number}, '{text}', 7)")
                        one.execute(f"DELETE FROM {name} WHERE a = {40 + number}")
                pipeline.wait_applied(self._de, self.fr)
            now = datetime.datetime.now(datetime.UTC)
            told = {"happened_at": now, "run": "r", "severity": "error", "event": "table_failed"}
            texts = {"shop_de": PLANTED, "shop_fr": "Mirabelle"}
            pipeline.app.lake.about.tell(
                "events", [{**told, "number": at, "source": source, "text": f"{text} is no date"}
                           for at, (source, text) in enumerate(texts.items(), 1)]
            )  # fmt: skip
            wait_until(lambda: len(self.events()) == 2, "events are told")

    def events(self) -> list[str]:
        name = "_kuvasz.events"
        found = load_catalog(self.lake.catalog, **self.lake.pyiceberg)
        return found.load_table(name).scan().to_arrow()["text"].to_pylist() if found.table_exists(name) else []

    def rejected(self, source: str) -> int:
        """Return how many rows of a source did not fit."""
        return self.table("_kuvasz.rejects").scan(row_filter=f"source == '{source}'").to_arrow().num_rows

    def table(self, name: str) -> Any:
        return load_catalog(self.lake.catalog, **self.lake.pyiceberg).load_table(name)

    def noted(self, source: str) -> list[str]:
        """Return what tables have noted of a source."""
        found = [name for table in TABLES for name in self.table(f"shop.{table}").properties]
        return [name for name in found if name.endswith(f".{source}")]

    def rows(self, sid: str) -> dict[str, list[str]]:
        found = {}
        for name in TABLES:
            rows = self.table(f"shop.{name}").scan(row_filter=f"sid == '{sid}'").to_arrow().to_pylist()
            found[name] = sorted(map(str, rows))
        return found

    def loaded(self) -> load.Loaded:
        return load.load(self.lake.folder / "map.yaml", {})

    def command(self, failpoint: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own, killed at a point."""
        return command(self.lake, failpoint)

    def erase(self, choice: SourceSelection = DE, **options: Any) -> dict[str, Any]:
        return erasing.run(self.loaded(), choice, is_sure=True, session=self.lake.session, **options)

    def holding(self, text: str) -> list[str]:
        """Return where a text is found: catalog, warehouse, state folder, map, and the spool."""
        return holding(self.lake.folder, text) + holding(Path(spool_folder(self.config)), text)


def command(lake: LakeFolder, failpoint: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Erase of the source `de` in a process of its own, killed at a point."""
    arguments = ["source", "erase", "--sid", "de", *more, "--yes", "--json", "--config", lake.folder / "map.yaml"]
    return subprocess.run(
        [sys.executable, "-m", "kuvasz", *map(str, arguments)], env=os.environ | {failpoints.VARIABLE: failpoint},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def world(
    database: Database, postgres18: Any, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(about, "INTERVAL_S", 0.5)
    other = create_database(postgres18)
    try:
        yield World(lake_folder, database, other)
    finally:
        drop_database(other)


def test_nothing_is_left_of_a_tenant_and_the_others_go_on(world: World, database: Database) -> None:
    erase_and_go_on(world, database)


@pytest.mark.slow
def test_of_a_tenant_that_stays_single_rows_of_each_type_are_erased(world: World, database: Database) -> None:
    erase_and_go_on(world, database)
    check_row(world)


def erase_and_go_on(world: World, database: Database) -> None:
    """Erase a tenant, and follow the other one behind it."""
    world.run()
    others = world.rows("fr")
    before = {name: len(rows) for name, rows in world.rows("de").items()}
    assert all(before.values())
    assert {name.rpartition(".")[2] for name in world.holding(PLANTED)} >= {"parquet", "avro"}
    quoting = {
        ("shop.items", "shop_de"): Verdict(error=f"{PLANTED} is no number"),
        ("shop.items", "shop_fr"): Verdict(at=1.0),
    }
    state_of(world.config).verdicts.put(quoting)

    found = Catalog(world.lake.session, world.lake.catalog).load("shop.items")
    assert found is not None
    found.snapshots.tag("cut_month", 3_600_000)
    with state_of(world.config).own("replicates"), pytest.raises(StateTaken):
        world.erase()
    with pytest.raises(ConfigError, match=r"shop\.items: cut_month"):
        world.erase()
    assert world.rows("fr") == others, "nothing was done"
    with pytest.raises(ConfigError, match="not a key of Ed25519"):
        world.erase(with_tags=True, signs_with=key_in(world.lake.folder, x25519.X25519PrivateKey.generate()))
    assert "de" in (world.lake.folder / "map.yaml").read_text()

    private = ed25519.Ed25519PrivateKey.generate()
    receipt = world.erase(with_tags=True, signs_with=key_in(world.lake.folder, private))
    assert erasing.exit_code(receipt) == 0, receipt
    assert receipt["dropped"]["sources"] == ["shop_de"]
    assert receipt["tables"]["shop.items"]["dropped_names"] == ["cut_month"]
    assert {name: receipt["tables"][f"shop.{name}"]["rows"] for name in TABLES} == before
    assert all(receipt["tables"][f"shop.{name}"]["snapshots_expired"] > 1 for name in TABLES)
    assert [receipt["tables"][f"_kuvasz.{name}"]["rows"] for name in ("events", "rejects")] == [1, 2]
    assert (sorted(world.events()), world.rejected("shop_fr")) == (
        ["Mirabelle is no date", "rows are erased for good"],
        2,
    )
    check_kept(receipt, private.public_key())
    check_by_hand(world.lake.folder, receipt)
    assert world.holding(PLANTED) == []
    assert list(state_of(world.config).verdicts.all()) == [("shop.items", "shop_fr")]
    assert (world.rows("fr"), any(world.rows("de").values())) == (others, False)
    assert not world.noted("shop_de"), "whoever comes back is new, and skipped again"
    assert not database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'kuvasz_shop_de'")

    with Pipeline(world.loaded().config, world.lake) as pipeline:
        pipeline.wait_streaming()
        world.fr.execute("UPDATE items SET n = 1000 WHERE a = 3")
        world.fr.execute("DELETE FROM bag WHERE a = 4")
        world.fr.execute("UPDATE prices SET n = 1000 WHERE a = 3")
        world.fr.execute(f"INSERT INTO prices VALUES (9, '{PLANTED}', 1), (9, '{PLANTED}s', 1)")
        for name in ONE_ROW:
            world.fr.execute(f"INSERT INTO {name} VALUES (9, '{PLANTED}', 1)")
        pipeline.wait_applied(world.fr)
        world.fr.execute(f"UPDATE prices SET n = 2 WHERE b = '{PLANTED}'")
        pipeline.wait_applied(world.fr)
    rows = world.table("shop.items").scan(row_filter="a == 3").to_arrow().to_pylist()
    assert [row["n"] for row in rows] == [1000]
    assert world.table("shop.bag").scan(row_filter="a == 4").count() == 0
    assert len(world.rows("fr")["prices"]) == len(others["prices"]) + 4


def check_kept(receipt: dict[str, Any], public: ed25519.Ed25519PublicKey) -> None:
    """Check the receipt that was kept."""
    kept = json.loads(Path(receipt["file"]).read_text())
    assert kept["sha256"] == erasing.digest(kept)
    public.verify(base64.b64decode(kept["signature"]["base64"]), kept["sha256"].encode())


def key_in(folder: Path, private: ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey) -> SigningKey:
    """Return a key as a person has it in a file."""
    file = folder / "erasures.pem"
    file.write_bytes(private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))  # fmt: skip
    return SigningKey.read(file)


#: What docs/operating.md has whoever checks a receipt type in.
_BY_HAND = r"```sh\n(jq -j \.sha256 receipt\.json.*?)```"


def check_by_hand(folder: Path, receipt: dict[str, Any]) -> None:
    """Check a receipt as it is printed, by OpenSSL and jq, as the page says, where the machine has them."""
    if not all(map(shutil.which, ("openssl", "jq"))):
        return
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    (public,), (typed,) = re.findall(r"`(openssl pkey [^`]*)`", page), re.findall(_BY_HAND, page, re.DOTALL)
    (folder / "receipt.json").write_text(json.dumps(receipt, indent=2))
    done = subprocess.run(
        ["bash", "-ec", f"{public}\n{typed}"], cwd=folder, capture_output=True, text=True, check=False
    )
    said = done.stdout.splitlines()
    assert said == ["Signature Verified Successfully", f"{receipt['sha256']}  -"], done.stderr


def check_row(world: World) -> None:
    """One row is erased, with its versions, and the others of its table stay; its source still has it."""
    asked = ErasureRequest(table="prices", key=("9", PLANTED), sid="fr")
    with pytest.raises(ConfigError, match=r"the rows of 'fr' with this key .* from shop\.prices"):
        row_erasing.run(world.loaded().config, asked, is_sure=False)
    others = [row for row in world.rows("fr")["prices"] if f"'{PLANTED}'" not in row]
    receipt = row_erasing.run(world.loaded().config, asked, is_sure=True, session=world.lake.session)
    assert erasing.exit_code(receipt) == 0, receipt
    assert receipt["tables"]["shop.prices"]["rows"] == 2
    assert [one["rows"] for one in receipt["at_source"]] == [1]
    assert PLANTED not in json.dumps(receipt)
    assert "it has the row still" in erasing.render(receipt)
    assert world.rows("fr")["prices"] == others
    again = dataclasses.replace(asked, key=(f"b={PLANTED}s", "a=9"))
    row_erasing.run(world.loaded().config, again, is_sure=True, session=world.lake.session)
    for name in ONE_ROW:
        of_another = dataclasses.replace(asked, table=name, key=("a=9", f"b={PLANTED}"))
        receipt = row_erasing.run(world.loaded().config, of_another, is_sure=True, session=world.lake.session)
        assert (receipt["is_clean"], receipt["tables"][f"shop.{name}"]["rows"]) == (True, 1)
    assert world.holding(PLANTED) == []


def test_what_came_while_kuvasz_ran_in_between_goes_as_well(
    world: World, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source has the row still: what is done of an erasure that failed behind its table is not done for ever."""
    world.run()
    asked = ErasureRequest(table="items", key=("1", f"{PLANTED}-1"), sid="de")

    def erase() -> dict[str, Any]:
        return row_erasing.run(world.loaded().config, asked, is_sure=True, session=world.lake.session)

    def find() -> int:
        return int(world.table("shop.items").scan(row_filter=f"a == 1 and b == '{PLANTED}-1'").count())

    database.execute(f"INSERT INTO items VALUES (1, '{PLANTED}-1', 0) ON CONFLICT DO NOTHING")
    with Pipeline(world.config, world.lake) as pipeline:
        pipeline.wait_applied(database)
    assert find() == 1
    with monkeypatch.context() as patch:
        patch.setattr(erased_state, "forget", failing)
        with pytest.raises(StateError):
            erase()
    assert find() == 0
    with Pipeline(world.config, world.lake) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = n + 1 WHERE a = 1")
        pipeline.wait_applied(database)
    assert find() == 1
    receipt = erase()
    assert (receipt["is_clean"], find()) == (True, 0)
    assert receipt["tables"]["shop.items"]["rows"] == 2


# Slow: rejected rows are found and erased, over kills, below.
@pytest.mark.slow
def test_rejected_rows_are_found_by_a_key_that_does_not_fit_and_others_are_told(
    database: Database, lake_folder: LakeFolder
) -> None:
    """A key may be what is wrong with a row, and where it cannot be told nobody says that the row is gone."""
    database.execute("CREATE TABLE odd (a int, at timestamp, b text, PRIMARY KEY (a, at))")
    database.execute("CREATE TABLE made (code text PRIMARY KEY)")
    tables: dict[str, dict[str, Any] | None] = {
        "odd": {"on_bad_value": "reject"},
        "made": {"on_bad_value": "reject", "set": {"id": "CAST(code AS int)", "code": "code"}, "key": ["id"]},
    }
    config = lake_folder.config(group({"de": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute(
            f"INSERT INTO odd VALUES (1, 'infinity', '{PLANTED}'), (1, '-infinity', 'o'), (2, 'today', 'f')"
        )
        database.execute(f"INSERT INTO made VALUES ('{PLANTED}'), ('12')")
        pipeline.wait_applied(database)
        database.execute("DELETE FROM odd WHERE a = 1")
        database.execute(f"DELETE FROM made WHERE code = '{PLANTED}'")
        pipeline.wait_applied(database)

    def erase(*key: str, **options: Any) -> dict[str, Any]:
        table = "odd" if len(key) > 1 else "made"
        asked = ErasureRequest(table=table, key=key, sid="de", **options)
        return row_erasing.run(config, asked, is_sure=True, session=lake_folder.session)

    with pytest.raises(ConfigError, match="no value of the type timestamp"):
        erase("1", "yesterday")
    receipt = erase("1", "infinity")
    told = receipt["tables"]["_kuvasz.rejects"]
    assert (receipt["is_clean"], told["rows"]) == (True, 2), "that it came, and that it went"
    receipt = erase("12")
    told = receipt["tables"]["_kuvasz.rejects"]
    assert (receipt["is_clean"], told["rows"], told["scan"]["rows_unclear"]) == (False, 0, 2)
    assert "2 rejected rows may be it, for their keys cannot be told: --with-unclear" in erasing.render(receipt)
    assert holding(lake_folder.folder, PLANTED)
    receipt = erase("12", with_unclear=True)
    assert (receipt["is_clean"], receipt["tables"]["_kuvasz.rejects"]["rows"]) == (True, 2)
    assert holding(lake_folder.folder, PLANTED) == []
    assert receipt["other_tables"] == []
    config = lake_folder.config(group({"de": database}, tables | {"odd": None, "made": None}))
    assert erase("2", "2024-01-01")["other_tables"] == ["_kuvasz.rejects"], "nobody looked there"


#: Where the process is killed in turn: before a row is taken out of the rejected ones, behind that commit, and while
#: their files are written anew.
SOME_KILLS = ("before_swap:kill",), ()
ALL_KILLS = ("erasing:kill:12", "erasing:kill:2", "before_swap:kill"), ("erasing:kill:10", "erasing:kill:5")


@pytest.mark.parametrize(
    ("misfit_kills", "whole_kills"),
    [SOME_KILLS, pytest.param(*ALL_KILLS, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_an_erasure_of_rejected_rows_is_killed_and_its_receipt_tells_of_all_that_went(
    database: Database, lake_folder: LakeFolder, misfit_kills: Sequence[str], whole_kills: Sequence[str]
) -> None:
    """Of one the key does not fit, of the other all but the first version; some come while kuvasz runs in between."""
    database.execute("CREATE TABLE odd (a int, at timestamp, b text, PRIMARY KEY (a, at))")
    database.execute("CREATE TABLE even (a int PRIMARY KEY, at timestamp, b text)")
    tables = {name: {"on_bad_value": "reject"} for name in ("odd", "even")}
    config = lake_folder.config(group({"de": database}, tables), lake={"about": "_kuvasz"})

    def reject(version: str) -> None:
        for at, text in (("infinity", PLANTED), ("-infinity", "stays"), ("today", "stays")):
            database.execute(f"INSERT INTO odd VALUES (1, '{at}', '{text}{version}')")
        database.execute(f"INSERT INTO even VALUES (1, 'today', 'Zwetschge{version}'), (2, 'infinity', 'stays')")
        pipeline.wait_applied(database)
        database.execute("UPDATE even SET at = 'infinity', b = b || 'x' WHERE a = 1")
        pipeline.wait_applied(database)
        for table in tables:
            database.execute(f"DELETE FROM {table}")
        pipeline.wait_applied(database)

    def receipts() -> list[str]:
        return [one.name for one in (lake_folder.folder / "state" / "erasures").glob("receipt-*")]

    def erased(table: str, *key: str) -> dict[str, Any]:
        asked = ErasureRequest(table=table, key=key, sid="de")
        receipt = row_erasing.run(config, asked, is_sure=True, session=lake_folder.session)
        assert (receipt["is_clean"], receipt["at_source"][0]["rows"]) == (True, 0)
        assert receipt["sha256"] == erasing.digest(receipt)
        return receipt

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        reject("1")
    misfit = ("--table", "odd", "--key", "1", "--key", "infinity")
    for point in misfit_kills:
        assert command(lake_folder, point, *misfit).returncode == -signal.SIGKILL, point
        assert receipts() == [], "nobody is told that it is done"
    assert holding(lake_folder.folder, f"{PLANTED}1"), "it is not done"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        reject("2")
    assert holding(lake_folder.folder, f"{PLANTED}2")
    assert command(lake_folder, "erasing:kill:13", *misfit).returncode == -signal.SIGKILL
    receipt = erased("odd", "1", "infinity")
    assert receipt["tables"]["_kuvasz.rejects"]["rows"] == 4, "twice that it came, and that it went"
    assert holding(lake_folder.folder, PLANTED) == []

    whole = ("--table", "even", "--key", "1")
    for point in whole_kills:
        assert command(lake_folder, point, *whole).returncode == -signal.SIGKILL, point
    assert len(receipts()) == 1
    receipt = erased("even", "1")
    assert receipt["tables"]["_kuvasz.rejects"]["rows"] == 2
    assert holding(lake_folder.folder, "Zwetschge") == []
    catalog = load_catalog(lake_folder.catalog, **lake_folder.pyiceberg)
    left = catalog.load_table("_kuvasz.rejects").scan().to_arrow()["raw_row"].to_pylist()
    assert {json.loads(row).get("b", "stays")[:5] for row in left} == {"stays"}
    assert len(left) >= 4, "other rows' are all there"


def failing(*_: object) -> dict[str, Any]:
    raise StateError("no room")


@pytest.mark.slow
def test_whatever_fails_it_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    others = world.rows("fr")
    before = {name: len(rows) for name, rows in world.rows("de").items()}
    passes, ends = 0, 0

    def hit(name: str, error: Any = RuntimeError) -> None:
        nonlocal passes
        passes += name in {"erasing", "before_commit", "after_rewrite", "after_swap"}
        if passes > 5 + ends:
            raise error(f"failpoint {name}")

    monkeypatch.setattr(failpoints, "hit", hit)
    while True:
        passes = 0
        try:
            receipt = world.erase(SourceSelection(sid="shop_de"))  # which the map has at first alone
        except LakeError:
            ends += 1
            continue
        break
    assert ends > 5
    assert {name: receipt["tables"][f"shop.{name}"]["rows"] for name in TABLES} == before
    assert erasing.exit_code(receipt) == 0, receipt
    assert world.holding(PLANTED) == []
    assert world.rows("fr") == others


@pytest.mark.slow
def test_the_command_goes_on_after_kills(world: World) -> None:
    world.run()
    others = world.rows("fr")
    before = {name: len(rows) for name, rows in world.rows("de").items()}
    codes = [
        world.command(kill).returncode
        for kill in ("erasing:kill:4", "after_commit:kill", "before_swap:kill:2", "erasing:kill:20")
    ]
    assert set(codes) == {-signal.SIGKILL}
    ended = world.command("")
    assert ended.returncode == 0, ended.stderr
    receipt = json.loads(ended.stdout)
    assert {name: receipt["tables"][f"shop.{name}"]["rows"] for name in TABLES} == before
    assert receipt["is_clean"]
    assert world.holding(PLANTED) == []
    assert world.rows("fr") == others


def test_what_was_written_down_of_a_row_before_its_key_was_renamed_goes_as_well(
    database: Database, lake_folder: LakeFolder
) -> None:
    """The notes of a rejected row, and a changelog's old keys, name columns as they were called then."""
    tables: dict[str, dict[str, Any] | None] = {"odd": {"on_bad_value": "reject"}, "log": {"type": "changelog"}}
    for name in tables:
        database.execute(f"CREATE TABLE {name} (a int, b text, at timestamp, PRIMARY KEY (a, b))")
    config = lake_folder.config(group({"de": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute(f"INSERT INTO odd VALUES (1, '{PLANTED}', 'infinity'), (1, 'other', 'infinity')")
        database.execute(f"INSERT INTO log VALUES (1, '{PLANTED}')")
        database.execute("UPDATE log SET b = 'other'")
        pipeline.wait_applied(database)
        for name in tables:
            database.execute(f"ALTER TABLE {name} RENAME b TO c")
            database.execute(f"DELETE FROM {name} WHERE c = '{PLANTED}'")
            database.execute(f"INSERT INTO {name} VALUES (2, 'new')")
        pipeline.wait_applied(database)
    receipts = {
        name: row_erasing.run(
            config, ErasureRequest(table=name, key=("1", PLANTED)), is_sure=True, session=lake_folder.session
        )
        for name in tables
    }
    assert receipts["odd"]["tables"]["_kuvasz.rejects"]["rows"] == 1
    assert [one["is_clean"] for one in receipts.values()] == [True, False]
    assert receipts["log"]["tables"]["shop.log"]["scan"]["rows_naming_it"] == 1
