"""The benchmarks: the workload, the references, and scenarios of each kind around a stand-in for kuvasz."""

from __future__ import annotations

import json
import sys

import psycopg
import pyarrow.parquet as pq
import pytest

from benchmarks import __main__ as harness
from benchmarks import reference, shapes, stages, subject, workload
from benchmarks import run as runs
from benchmarks.log_counts import LogCounts
from benchmarks.outcome import Outcome
from benchmarks.profiles import collapse
from benchmarks.registry import SCENARIOS
from benchmarks.targets import TARGETS
from kuvasz.demo.fingerprint import postgres_query
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.staged.ports import StagedPosition, StagedSlice

pytestmark = pytest.mark.postgres

#: Copies the tables whole, again and again: slow and simple, and right unless told to lose a row.
_STAND_IN = """
import json, signal, struct, sys, time
from pathlib import Path
import psycopg, pyarrow as pa
from psycopg import pq
from pyiceberg.catalog import load_catalog

loses_a_row = {loses_a_row}
given = json.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
file = given["lake"]["uri"].removeprefix("jdbc:sqlite:")
catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{{file}}", warehouse=f"file://{{file}}.d")
catalog.create_namespace_if_not_exists("bench")
types = {{"int8": pa.int64(), "int4": pa.int32(), "text": pa.string(), "numeric": pa.decimal128(12, 2),
          "timestamptz": pa.timestamp("us", "UTC"), "timestamp": pa.timestamp("us"), "bool": pa.bool_(),
          "jsonb": pa.string(), "bpchar": pa.string()}}

def say(event, **facts):
    print(json.dumps(dict(event=event, **facts)), file=sys.stderr, flush=True)

def rows_of(group, url, table):
    with psycopg.connect(url["url"], options="-c timezone=UTC") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        place = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]
        found = connection.execute(
            "SELECT attname, typname FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum", (table,)).fetchall()
        texts = ", ".join(f'"{{n}}"::text AS "{{n}}"' if t == "jsonb" else f'"{{n}}"' for n, t in found)
        rows = connection.execute(f"SELECT {{texts}} FROM {{table}}").fetchall()[loses_a_row:]
    schema = pa.schema([(name, types[kind]) for name, kind in found])
    columns = list(zip(*rows))
    values = pa.table([pa.array(c, t) for c, t in zip(columns, schema.types)], schema=schema)
    if "sid" in url:
        values = values.append_column("sid", pa.array([url["sid"]] * len(rows)))
    return values, place

def copy(group, table, spec):
    target = "bench." + ((spec or {{}}).get("target") or table)
    parts, places = [], {{}}
    for url in group["urls"]:
        values, place = rows_of(group, url, table)
        parts.append(values)
        source = "_".join([group["database"], *([url["sid"]] if "sid" in url else [])])
        places["kuvasz.position." + source] = json.dumps({{"lsn": place}})
    values = pa.concat_tables(parts)
    lake = catalog.create_table_if_not_exists(target, schema=values.schema)
    with lake.transaction() as transaction:
        transaction.overwrite(values)
        transaction.set_properties(places)
    return target, len(values)

def copy_all():
    return [copy(group, *entry) for group in given["databases"] for entry in group["tables"].items()]

class Slot:
    def __init__(self, url):
        self.session = psycopg.connect(url, autocommit=True)
        name = "kuvasz_" + self.session.info.dbname
        self.stream = pq.PGconn.connect(psycopg.conninfo.make_conninfo(url, replication="database").encode())
        options = "(proto_version '1', publication_names 'kuvasz_bench')"
        started = self.stream.exec_(f"START_REPLICATION SLOT {{name}} LOGICAL 0/0 {{options}}".encode())
        assert started.status == pq.ExecStatus.COPY_BOTH, self.stream.error_message

    def place(self):
        return int(self.session.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0])

    def confirm(self, place):
        self.stream.put_copy_data(struct.pack(">cQQQQB", b"r", place, place, place, 0, 0))
        self.stream.flush()

def stop(*_):
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
urls = [url["url"] for group in given["databases"] for url in group["urls"]]
if "--until-caught-up" in sys.argv:
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_publication").fetchall():
                connection.execute("CREATE PUBLICATION kuvasz_bench FOR ALL TABLES")
            name = "kuvasz_" + connection.info.dbname
            if not connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchall():
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    loses_a_row, lost = 0, loses_a_row
    for table, rows in copy_all():
        for _ in given["databases"][0]["urls"]:
            say("copied", table=table, rows=rows, seconds=1.0)
else:
    slots = [Slot(url) for url in urls]
    for url in urls:
        say("streaming", source=url)
    while True:
        places = [slot.place() for slot in slots]
        for table, rows in copy_all():
            say("committed", table=table, rows=rows, seconds=0.01)
        for slot, place in zip(slots, places):
            slot.confirm(place)
        time.sleep(0.05)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    def install(*, loses_a_row: int = 0) -> None:
        program = tmp_path / "stand_in.py"
        program.write_text(_STAND_IN.format(loses_a_row=loses_a_row))
        monkeypatch.setattr(runs, "COMMAND", (sys.executable, str(program)))

    return install


def measured(tmp_path, scenario: str, *options: str) -> dict[str, float]:
    """Run a scenario in its tiny size and return its medians."""
    assert harness.main([scenario, "--size", "tiny", "--out", str(tmp_path / "out"), *options]) == 0
    result = json.loads((tmp_path / "out" / f"{scenario}.json").read_text())
    assert result["machine"]["cores"]
    return {figure["name"]: figure["median"] for figure in result["figures"]}


def test_the_quick_run_measures_prints_and_draws(stand_in, tmp_path, capsys):
    stand_in()

    found = measured(tmp_path, "quick")

    printed = capsys.readouterr().out
    assert "quick (rows=2000 changes=1000 " in printed
    assert found["rows copied"] == 2000.0  # the stand-in says that it took one second
    assert found["backlog: rows drained"] > 1001 / 60
    assert found["backlog: drained and confirmed"] > 1001 / 120
    assert "backlog: drained and confirmed, ratio to pg_recvlogical" in found  # which is over between two looks
    assert 0 < found["steady: lag p50"] <= found["steady: lag p99"] <= found["steady: lag worst"] < 60
    assert 0 < found["steady: changes made"] < 210
    assert found["backlog: CPU per row, driver"] > 0
    assert found["rows compared"] > 2000
    assert (tmp_path / "out" / "quick.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_run_that_loses_a_row_prints_no_result(stand_in, tmp_path, capsys):
    stand_in(loses_a_row=1)

    assert harness.main(["backlog-mixed", "--size", "tiny", "--out", str(tmp_path / "out")]) == 4

    printed = capsys.readouterr().out
    assert "backlog-mixed: WRONG: the lake differs from its source" in printed
    assert "ratio" not in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "options", "figures"),
    [
        ("copy-columns", (), ["ratio to bare COPY", "ratio to COPY to Parquet"]),
        ("backlog-tpcb", (), ["ratio to pg_recvlogical"]),
        ("transaction", (), ["ratio to bare reader", "RSS growth"]),
        ("fan-in-3", ("--sources", "2"), ["ratio to pg_recvlogical"]),
        ("clustered-backlog-mixed", (), ["rows drained, to alone", "CPU per row, to alone"]),
        ("idle", (), ["CPU of one core"]),
        ("about", (), ["CPU of one core, without", "CPU of one core, with"]),
        ("growth", (), ["commit time, last to first", "CPU per row, last to first"]),
    ],
)
def test_each_kind_of_scenario_measures(stand_in, tmp_path, scenario, options, figures):
    stand_in()

    found = measured(tmp_path, scenario, *options)

    assert found["rows compared"] > 100
    for figure in figures:
        assert found[figure] == found[figure], figure  # not NaN
        assert abs(found[figure]) < 1e9


@pytest.mark.slow
@pytest.mark.spark
def test_a_backlog_is_drained_into_null_sinks_and_then_by_kuvasz_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "STAGES", ("decoding", "folding"))

    found = measured(tmp_path, "backlog-mixed", "--stages")

    assert found["up to decoding"] > 0
    assert found["up to folding"] > 0
    assert found["rows compared"] > 2000  # nothing of the backlog was lost to the sinks


@pytest.mark.slow
@pytest.mark.spark
def test_rows_are_traced_behind_snapshots_that_changed_others(tmp_path):
    found = measured(tmp_path, "trace")

    assert found["snapshots"] == 13, "the copy, and one for each transaction"
    assert 0 < found["trace, median"] <= found["trace, slowest"] < 60
    assert found["rows compared"] == 2000


def test_the_index_is_measured_without_a_server_and_as_often_as_asked(tmp_path):
    found = measured(tmp_path, "index", "--runs", "2")
    result = json.loads((tmp_path / "out" / "index.json").read_text())
    assert len(result["runs"]) == 2
    assert all(figure["min"] <= figure["median"] <= figure["max"] for figure in result["figures"])

    assert found["disk per row"] >= 16  # a hashed key alone
    assert found["look-ups"] > 0


def test_every_target_names_a_figure_of_a_scenario_and_its_options():
    for (scenario, _), target in TARGETS.items():
        assert target.sizes.keys() <= SCENARIOS[scenario].options().keys(), scenario
        assert target.applies(SCENARIOS[scenario].make("full", {}).options), scenario
        assert not target.applies(SCENARIOS[scenario].make("tiny", {}).options), scenario


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["idle", "nothing"], "error: there is no scenario nothing; hint: --list shows them\n"),
        (["idle", "--shape", "wide"], "error: --shape is no option of idle\n"),
    ],
)
def test_a_wrong_argument_is_refused(capsys, arguments, message):
    assert harness.main(arguments) == 2
    assert capsys.readouterr().err == message


def test_samples_of_the_jvm_become_stacks():
    printed = """jdk.ExecutionSample {
  startTime = 10:00
  stackTrace = [
    java.util.HashMap.get(Object) line: 5
    org.Main.<init>(String) line: 7
  ]
}

"""
    assert collapse(printed * 2) == {("org.Main.<init>", "java.util.HashMap.get"): 2}


def test_kuvasz_ending_early_is_told_with_what_it_said(tmp_path, monkeypatch):
    program = "import sys; print('cannot go on', file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(runs, "COMMAND", (sys.executable, "-c", program))
    group = subject.Group(database="bench", urls=[(None, "postgresql://localhost/none")], fields={"load_0": ()})
    tested = subject.Subject(tmp_path, [group])

    with tested.start() as run, pytest.raises(RuntimeError, match=r"kuvasz ended with 3\ncannot go on"):
        run.wait_for("streaming", timeout_s=30)


def test_the_workload_makes_as_many_changes_as_asked_in_the_given_mix(database):
    load = workload.Workload(rows=3000, tables=2, changes=2000, mix=workload.Mix(per_transaction=30))
    load.create(database.url)
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    reference.create_slot(database.url, "s")

    mark = load.change(database.url)

    counted = database.execute(
        "SELECT chr(get_byte(data, 0)), count(*)::int, count(DISTINCT substr(data, 2, 4))"
        " FROM pg_logical_slot_peek_binary_changes("
        "'s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        " GROUP BY 1"
    )
    kinds = {kind: (count, relations) for kind, count, relations in counted}
    updates, inserts, deletes = (kinds[kind][0] for kind in "UID")
    assert updates + inserts + deletes == mark.rows == 2000 + 2  # the last transaction changes a row of each table
    assert 0.55 < updates / 2000 < 0.65
    assert 0.20 < inserts / 2000 < 0.30
    assert {kinds[kind][1] for kind in "UID"} == {2}
    assert kinds["B"][0] == -(-2000 // 30) + 1


def test_hot_changes_fall_onto_a_fifth_of_the_keys(database):
    load = workload.Workload(rows=1000, changes=1000, mix=workload.Mix(updates=1.0, inserts=0.0, hot=0.8))
    load.create(database.url)
    database.execute("CREATE TABLE touched AS SELECT id, 0 AS times FROM load_0")
    database.execute(
        "CREATE RULE count AS ON UPDATE TO load_0 DO ALSO"
        " UPDATE touched SET times = times + 1 WHERE touched.id = old.id"
    )

    load.change(database.url)

    [(share,)] = database.execute("SELECT sum(times) FILTER (WHERE id <= 200) / sum(times)::float8 FROM touched")
    assert 0.78 < share < 0.90  # 80 % on purpose, and a fifth of the rest


@pytest.mark.parametrize("shape", shapes.SHAPES.values(), ids=lambda shape: shape.name)
def test_one_seed_makes_one_workload(database, shape):
    contents = []
    for _ in range(2):
        load = workload.Workload(rows=300, changes=200, seed=5, shape=shape)
        load.create(database.url)
        load.change(database.url)
        fields = [field for field in shape.fields[:40] if field.name not in {"at", "c3"}]  # the time of the update
        with psycopg.connect(database.url) as connection:
            contents.append(connection.execute(postgres_query("load_0", fields)).fetchall())
    assert contents[0] == contents[1]


def test_the_references_count_all_rows(database, tmp_path):
    load = workload.Workload(rows=1234, changes=500)
    load.create(database.url)
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    for slot in ("s", "t"):
        reference.create_slot(database.url, slot)
    mark = load.change(database.url)
    waiting = reference.Backlog(url=database.url, slot="s", publication="p", end_lsn=mark.lsn)

    copied = reference.bare_copy(database.url, "load_0")
    written = reference.copy_to_parquet(database.url, "load_0", tmp_path / "rows.parquet")
    received = reference.recvlogical(database.server, [waiting], rows=mark.rows, log=tmp_path / "log")
    read = reference.bare_reader(
        [reference.Backlog(url=database.url, slot="t", publication="p", end_lsn=mark.lsn)], rows=mark.rows
    )

    rows = database.execute("SELECT count(*) FROM load_0")[0][0]
    assert copied.rows == written.rows == rows
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == rows
    assert received.seconds > 0
    assert read.seconds > 0
    [(confirmed,)] = database.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = 's'"
    )
    assert confirmed >= mark.lsn - 1000


def test_what_a_staged_log_asks_of_coordinator_and_store_is_counted(database, tmp_path):
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path, 30.0)
    assert store._lease.take("replicates", "") is None
    index = store.log_index
    index.open()
    index.begin_anew("eu", 1)
    counts, outcome = LogCounts(database.url), Outcome()
    for number in range(1, 31):
        at = index.positions()["eu"]
        piece = StagedSlice(
            source="eu",
            first=number,
            last=number,
            through=at.lsn + 1,
            is_open=False,
            object=str(number),
            at=0,
            size=1,
        )
        after = StagedPosition(lsn=at.lsn + 1, ended=at.lsn + 1, number=number)
        index.append(piece.object, [piece], {"eu": (at, after)})
    names = index.applied({"eu": at.lsn + 1}).names
    index.applied({}, names[:10])
    store._database.close()  # its sessions tell what they did
    counts.add(outcome)
    found = {figure.name: figure.value for figure in outcome.figures}
    assert found["objects written"] == pytest.approx(3 * found["objects removed"])
    assert found["objects written"] > 1
    assert found["coordinator's rows written"] > 3 * found["objects written"]
    assert found["coordinator's transactions"] > found["objects written"]
