"""The benchmarks: the workload, the references, and the whole quick run around a stand-in for kuvasz."""

from __future__ import annotations

import json
import sys

import psycopg
import pytest

from benchmarks import quick, reference, subject, workload
from kuvasz.demo.fingerprint import postgres_query

pytestmark = pytest.mark.postgres

#: Copies the table whole, again and again: slow and simple, and right unless told to lose a row.
_STAND_IN = """
import json, re, signal, sys, time
from pathlib import Path
import psycopg, pyarrow as pa
from pyiceberg.catalog import load_catalog

loses_a_row = {loses_a_row}
text = Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
url = re.search(r'url: "(.*)"', text)[1]
file = re.search("jdbc:sqlite:(.*)", text)[1]
catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{{file}}", warehouse=f"file://{{file}}.d")
catalog.create_namespace_if_not_exists("bench")
schema = pa.schema([("id", pa.int64()), ("account", pa.int32()), ("label", pa.string()),
                    ("amount", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC")), ("is_open", pa.bool_())])
table = catalog.create_table_if_not_exists("bench.load_0", schema=schema)

def say(event, **facts):
    print(json.dumps(dict(event=event, **facts)), file=sys.stderr, flush=True)

def copy():
    with psycopg.connect(url, options="-c timezone=UTC") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        place = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]
        rows = connection.execute("SELECT * FROM load_0").fetchall()
    rows = rows[loses_a_row:]
    columns = list(zip(*rows))
    with table.transaction() as transaction:
        transaction.overwrite(pa.table([pa.array(c, t) for c, t in zip(columns, schema.types)], schema=schema))
        transaction.set_properties({{"kuvasz.position.bench": json.dumps({{"lsn": place}})}})
    return len(rows)

def stop(*_):
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
if "--until-caught-up" in sys.argv:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE PUBLICATION kuvasz_bench FOR TABLE load_0")
    loses_a_row, lost = 0, loses_a_row
    say("copied", table="bench.load_0", rows=copy(), seconds=1.0)
else:
    say("streaming", source="bench")
    while True:
        copy()
        time.sleep(0.05)
"""
SIZES = ["--rows", "2000", "--changes", "1000", "--lag-seconds", "2", "--lag-rate", "200"]


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    def install(*, loses_a_row: int) -> None:
        program = tmp_path / "stand_in.py"
        program.write_text(_STAND_IN.format(loses_a_row=loses_a_row))
        monkeypatch.setattr(subject, "COMMAND", (sys.executable, str(program)))
        monkeypatch.setattr(quick, "_OUT", tmp_path / "out" / "quick.json")

    return install


def test_the_quick_run_measures_and_prints(stand_in, tmp_path, capsys):
    stand_in(loses_a_row=0)

    assert quick.main(SIZES) == 0

    printed = capsys.readouterr().out
    assert "all rows equal" in printed
    result = json.loads((tmp_path / "out" / "quick.json").read_text())
    assert result["drain"]["changes"] == 1001
    assert 0 < result["drain"]["seconds"] < 60
    assert 0 < result["lag"]["p50"] <= result["lag"]["p99"] <= result["lag"]["worst"] < 60
    assert result["lag"]["transactions"] == 40
    assert sum(result["drain"]["cpu_s"].values()) > 0


def test_a_run_that_loses_a_row_prints_no_result(stand_in, tmp_path, capsys):
    stand_in(loses_a_row=1)

    assert quick.main(SIZES) == 4

    printed = capsys.readouterr().out
    assert printed.startswith("WRONG: the lake differs from its source")
    assert "ratio" not in printed
    assert not (tmp_path / "out").exists()


def test_kuvasz_ending_early_is_told_with_what_it_said(tmp_path, monkeypatch):
    program = "import sys; print('cannot go on', file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(subject, "COMMAND", (sys.executable, "-c", program))
    tested = subject.Subject(tmp_path, "postgresql://localhost/none", ["load_0"])

    with tested.start() as run, pytest.raises(RuntimeError, match=r"kuvasz ended with 3\ncannot go on"):
        run.wait_for("streaming", timeout_s=30)


def test_the_workload_makes_as_many_changes_as_asked_in_the_given_mix(database):
    workload.create(database.url, rows=3000, tables=2)
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    reference.create_slot(database.url, "s")

    workload.change(database.url, changes=2000, tables=2, per_transaction=30)

    counted = database.execute(
        "SELECT chr(get_byte(data, 0)), count(*)::int, count(DISTINCT substr(data, 2, 4))"
        " FROM pg_logical_slot_peek_binary_changes("
        "'s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        " GROUP BY 1"
    )
    kinds = {kind: (count, relations) for kind, count, relations in counted}
    updates, inserts, deletes = (kinds[kind][0] for kind in "UID")
    assert updates + inserts + deletes == 2000 + 1  # the last one marks the end
    assert 0.55 < updates / 2000 < 0.65
    assert 0.20 < inserts / 2000 < 0.30
    assert {kinds[kind][1] for kind in "UID"} == {2}
    assert kinds["B"][0] == -(-2000 // 30) + 1


def test_one_seed_makes_one_workload(database):
    contents = []
    for _ in range(2):
        workload.create(database.url, rows=500)
        workload.change(database.url, changes=300, seed=5)
        fields = [field for field in workload.FIELDS if field.name != "at"]
        with psycopg.connect(database.url) as connection:
            contents.append(connection.execute(postgres_query("load_0", fields)).fetchall())
    assert contents[0] == contents[1]


def test_the_references_count_all_rows(database, tmp_path):
    workload.create(database.url, rows=1234)
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    reference.create_slot(database.url, "s")
    mark = workload.change(database.url, changes=500)
    log = tmp_path / "log"

    copied = reference.bare_copy(database.url, "load_0")
    received = reference.recvlogical(
        database.server, database.url, slot="s", publication="p", end_lsn=mark.lsn, rows=501, log=log
    )

    assert copied.rows == database.execute("SELECT count(*) FROM load_0")[0][0]
    assert received.seconds > 0
    [(confirmed,)] = database.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = 's'"
    )
    assert confirmed >= mark.lsn - 1000
