"""filter, set and mask: a view at the source says what the lake must hold, in copy and in stream."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import shutil

import pytest
from pyspark.sql import SparkSession

from kuvasz import cli
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import ConfigError, ExpressionRefused, MapMismatch
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.state.tables import State
from tests.support import changes
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import lake_rows_pyiceberg, source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ORDERS = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, country text, kind text, price numeric(12,2), n int,"
    " token uuid DEFAULT gen_random_uuid(), tags text[], at timestamptz DEFAULT now(), day date DEFAULT current_date)"
)
ROWS = (
    "INSERT INTO orders SELECT i, CASE i % 4 WHEN 0 THEN 'XX' WHEN 1 THEN 'hu' WHEN 2 THEN NULL ELSE 'de' END,"
    " 'Kind ' || i % 5, i * 1.25, i % 7, gen_random_uuid(), ARRAY['a', NULL, 'b' || i]"
    " FROM generate_series({}, {}) i"
)


def test_rows_enter_and_leave_a_filter(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ORDERS)
    database.execute(ROWS.format(1, 500))
    database.execute("CREATE VIEW seen AS SELECT * FROM orders WHERE country <> 'XX' AND n < 5")
    config = lake_folder.config(group({"eu": database}, {"orders": {"filter": "country <> 'XX' AND n < 5"}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("orders", source_rows(database.url, "seen", sid="eu"))
        with database.connect() as session:
            session.execute("UPDATE orders SET country = 'XX' WHERE id % 10 = 1")
            session.execute("UPDATE orders SET country = 'hu' WHERE id % 10 = 2")
            session.execute("UPDATE orders SET n = n + 1 WHERE id % 3 = 0")
            session.execute("DELETE FROM orders WHERE id % 11 = 0")
            session.execute(ROWS.format(501, 600))
            session.execute("UPDATE orders SET id = id + 1000 WHERE id % 17 = 0")
            session.execute("UPDATE orders SET id = id + 2000, country = 'XX' WHERE id % 19 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("orders", source_rows(database.url, "seen", sid="eu"))
        database.execute("UPDATE orders SET country = 'XX'")
        pipeline.wait_applied(database)
        pipeline.assert_equal("orders", source_rows(database.url, "seen", sid="eu"))
        database.execute("UPDATE orders SET country = 'se', n = 1")
        pipeline.wait_applied(database)
        pipeline.assert_equal("orders", source_rows(database.url, "seen", sid="eu"))


def test_sources_of_one_target_are_evaluated_together(
    database: Database, postgres18: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    other = create_database(postgres18)
    sources = {"eu": database, "us": other}
    for source in sources.values():
        source.execute(ORDERS)
        source.execute(ROWS.format(1, 100))
        source.execute("CREATE VIEW seen AS SELECT id, upper(kind) AS kind FROM orders WHERE n < 5")
    table = {"filter": "n < 5", "set": {"id": "id", "kind": "upper(kind)"}}
    config = lake_folder.config(group(sources, {"orders": table}), commit_interval="1s")
    try:
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            for number, source in enumerate(sources.values()):
                source.execute(f"UPDATE orders SET n = n + {number + 1}, kind = kind || '{number}'")
                source.execute("DELETE FROM orders WHERE id % 9 = 0")
            pipeline.wait_applied(*sources.values())
            expected = [source_rows(source.url, "seen", sid=sid) for sid, source in sources.items()]
            pipeline.assert_equal("orders", *expected, key=("sid", "id"))
    finally:
        drop_database(other)


def test_set_names_the_columns(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ORDERS)
    database.execute(ROWS.format(1, 300))
    database.execute(
        "CREATE VIEW seen AS SELECT id AS number, token, lower(kind) AS kind, (price * 2)::numeric(14,2) AS twice,"
        " n::bigint + 1 AS next, tags, at AS stamp, day + 1 AS tomorrow, country IS NULL AS nowhere FROM orders"
    )
    columns = {
        "number": "id", "token": "token", "kind": "lower(kind)", "twice": "CAST(price * 2 AS decimal(14,2))",
        "next": "CAST(n AS bigint) + 1", "tags": "transform(tags, tag -> tag)", "stamp": "at",
        "tomorrow": "day + 1", "nowhere": "country IS NULL",
    }  # fmt: skip
    config = lake_folder.config(group({"eu": database}, {"orders": {"set": columns, "target": "facts"}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("facts", source_rows(database.url, "seen", sid="eu"), key=("number",))
        database.execute("UPDATE orders SET kind = upper(kind), country = NULL WHERE id % 2 = 0")
        database.execute("UPDATE orders SET id = id + 1000, tags = NULL WHERE id % 7 = 0")
        database.execute("DELETE FROM orders WHERE id % 5 = 0")
        database.execute(ROWS.format(301, 320))
        pipeline.wait_applied(database)
        pipeline.assert_equal("facts", source_rows(database.url, "seen", sid="eu"), key=("number",))


def test_the_key_may_be_computed(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE parts (region text, no int, name text, PRIMARY KEY (region, no))")
    database.execute("INSERT INTO parts SELECT 'R' || i % 3, i, 'p' FROM generate_series(1, 90) i")
    database.execute("CREATE VIEW seen AS SELECT lower(region) || '-' || no AS code, name FROM parts")
    columns = {"code": "concat(lower(region), '-', no)", "name": "name"}
    config = lake_folder.config(group({None: database}, {"parts": {"set": columns, "key": ["code"]}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE parts SET name = 'q' WHERE no % 2 = 0")
        database.execute("UPDATE parts SET region = 'S' WHERE no % 5 = 0")
        database.execute("DELETE FROM parts WHERE no % 3 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("parts", source_rows(database.url, "seen"), key=("code",))


@pytest.mark.parametrize("identity", ["DEFAULT", pytest.param("FULL", marks=pytest.mark.slow)])
def test_unchanged_large_values_in_expressions(database: Database, lake_folder: LakeFolder, identity: str) -> None:
    database.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text, note text)")
    database.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL")
    database.execute(f"ALTER TABLE docs REPLICA IDENTITY {identity}")
    database.execute(
        "INSERT INTO docs SELECT i, 0, repeat('x', 4000) || i, repeat('y', 5000) FROM generate_series(1, 40) i"
    )
    database.execute("CREATE VIEW seen AS SELECT id, n, length(body) AS size, upper(note) AS note, body FROM docs")
    columns = {"id": "id", "n": "n", "size": "length(body)", "note": "upper(note)", "body": "body"}
    config = lake_folder.config(group({"eu": database}, {"docs": {"set": columns}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE docs SET n = n + 1 WHERE id % 2 = 0")
        with database.connect() as session:
            session.execute("INSERT INTO docs VALUES (100, 1, repeat('z', 3000), repeat('w', 3000))")
            session.execute("UPDATE docs SET n = 2 WHERE id = 100")
            session.execute("UPDATE docs SET body = repeat('v', 3500), n = 3 WHERE id = 5")
            session.execute("UPDATE docs SET id = 200 WHERE id = 5")
        pipeline.wait_applied(database)
        pipeline.assert_equal("docs", source_rows(database.url, "seen", sid="eu"))


def test_what_an_update_leaves_out_and_an_expression_needs_stops_the_table(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)")
    database.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    database.execute("INSERT INTO docs SELECT i, 0, repeat('x', 4000) FROM generate_series(1, 5) i")
    config = lake_folder.config(group({"eu": database}, {"docs": {"set": {"id": "id", "m": "concat(n, body)"}}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE docs SET n = 1")
        pipeline.wait_state("shop_eu", "shop.docs", State.ERROR)
        assert "column m is computed from a large value that 5 updates leave out" in pipeline.errors()[0]
        assert "REPLICA IDENTITY FULL" in pipeline.errors()[0]


def test_a_failing_expression_stops_its_table_alone(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ORDERS)
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    tables = {"orders": {"set": {"id": "id", "share": "100 / n"}}, "items": None}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("INSERT INTO orders (id, n) VALUES (1, 0)")
            session.execute("INSERT INTO items VALUES (1, 1)")
        pipeline.wait_state("shop_eu", "shop.orders", State.ERROR)
        assert "DIVIDE_BY_ZERO" in pipeline.errors()[0]
        database.execute("INSERT INTO items VALUES (2, 2)")
        catalog = lake_folder.catalog
        wait_until(
            lambda: len(lake_rows_pyiceberg(lake_folder.pyiceberg, "shop.items", catalog=catalog)) == 2, "items go on"
        )
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


@pytest.mark.parametrize(
    "computed",
    [
        "CAST(raw AS string)",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("array('x', CAST(raw AS string))", "map('x', CAST(raw AS string))")
        ),
    ],
)
def test_bytes_that_are_no_text_stop_their_table(database: Database, lake_folder: LakeFolder, computed: str) -> None:
    """Spark takes any bytes for a string; other engines cannot read a file with such a one."""
    database.execute("CREATE TABLE parts (id int PRIMARY KEY, raw bytea)")
    database.execute("INSERT INTO parts VALUES (1, convert_to('žlt', 'UTF8')), (2, NULL), (3, '')")
    config = lake_folder.config(group({None: database}, {"parts": {"set": {"id": "id", "body": computed}}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        before = pipeline.rows("parts")
        assert len(before) == 3
        database.execute(r"INSERT INTO parts VALUES (4, '\x61ff')")
        pipeline.wait_state("shop", "shop.parts", State.ERROR)
        assert "INVALID_UTF8_STRING" in pipeline.errors()[0]
        database.execute("DELETE FROM parts WHERE id = 4")
        pipeline.tell("resync", "shop.parts", "shop")
        pipeline.wait_streaming()
        assert pipeline.rows("parts") == before


def test_expressions_meet_only_rows_that_carry_what_they_look_at(database: Database, lake_folder: LakeFolder) -> None:
    """A DELETE has nothing but the key, infinity goes by the table's policy, and a filter of the key is final."""
    database.execute("CREATE TABLE shares (id int PRIMARY KEY, n int NOT NULL, day date, big text)")
    database.execute("ALTER TABLE shares ALTER big SET STORAGE EXTERNAL")
    database.execute("INSERT INTO shares SELECT i, i, CASE i % 2 WHEN 0 THEN 'infinity'::date ELSE '2024-02-29' END,"
                     " repeat(md5(i::text), 200) FROM generate_series(1, 9) i")  # fmt: skip
    database.execute("CREATE TABLE events (id int PRIMARY KEY, n int)")
    columns = {
        "id": "id", "share": "CAST(100 / coalesce(n, 0) AS int)", "year": "year(day)",
        "per": "CAST(1000 / length(coalesce(big, '')) AS int)",
    }  # fmt: skip
    tables = {
        "shares": {"set": columns, "filter": "100 / coalesce(n, 0) >= 1", "out_of_range": "null"},
        "events": {"type": "changelog", "filter": "id % 2 = 0"},
    }
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("DELETE FROM shares WHERE id = 1")
            session.execute("UPDATE shares SET id = 20 WHERE id = 2")
            session.execute("UPDATE shares SET n = 50 WHERE id = 3")
            session.execute("INSERT INTO shares VALUES (30, 1, '-infinity', 'x')")
            session.execute("INSERT INTO events SELECT i, 1 FROM generate_series(1, 4) i")
            session.execute("UPDATE events SET n = 2 WHERE id < 3")
            session.execute("UPDATE events SET id = id + 10 WHERE id > 2")
            session.execute("DELETE FROM events")
        pipeline.wait_applied(database)
        expected = database.execute("SELECT id, 100 / n, CASE WHEN isfinite(day) THEN 2024 END, 1000 / length(big)"
                                    " FROM shares WHERE 100 / n > 0")  # fmt: skip
        assert sorted(pipeline.rows("shares"), key=str) == sorted(expected, key=str)
        found = lake_rows_pyiceberg(lake_folder.pyiceberg, "shop.events", catalog=lake_folder.catalog)
        events = found.select(["_op", "id"]).rows
        assert events == {("I", 2): 1, ("I", 4): 1, ("U", 2): 1, ("U", 14): 1, ("D", 2): 1, ("D", 14): 1}


SECRET = "a key of the test alone"


def pseudonym(text: str) -> str:
    key = hmac.new(b"kuvasz.mask", SECRET.encode(), hashlib.sha256).digest()
    key = hmac.new(key, b"users.email\x01", hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def found(pipeline: Pipeline, target: str, *columns: str) -> list[tuple]:
    rows = lake_rows_pyiceberg(pipeline.folder.pyiceberg, f"shop.{target}", catalog=pipeline.folder.catalog)
    return sorted(rows.select(columns).rows.elements(), key=str)


def test_masked_columns_hide_their_values(database: Database, lake_folder: LakeFolder) -> None:
    """Also of the key: `hmac` keeps rows apart in every table type, in copy and stream and with a lost index."""
    database.execute("CREATE TABLE users (email text PRIMARY KEY, phone text, n int)")
    database.execute(
        "INSERT INTO users SELECT 'u' || i, CASE WHEN i > 1 THEN '555' END, i FROM generate_series(1, 5) i"
    )
    options = {"mask": {"email": "hmac:users.email", "phone": "redact"}}
    types = ("clone", "append", "history", "changelog")
    groups = [
        one
        for kind in types
        for one in group({None: database}, {"users": {"type": kind, "target": kind, **options}}, name=kind)
    ]
    config = lake_folder.config(groups, mask_secret=SECRET)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE users SET n = -n WHERE email = 'u2'")
        pipeline.wait_applied(database)
    shutil.rmtree(lake_folder.folder / "state" / "index")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE users SET email = 'x3' WHERE email = 'u3'")
        database.execute("DELETE FROM users WHERE email = 'u4'")
        database.execute("INSERT INTO users VALUES ('u6', '555', 6)")
        database.execute("UPDATE users SET n = 7 WHERE email = 'u2'")
        pipeline.wait_applied(database)
        copied = [(pseudonym(f"u{n}"), "***" if n > 1 else None, n) for n in range(1, 6)]
        u2, u3, x3, u4, u6 = map(pseudonym, ("u2", "u3", "x3", "u4", "u6"))
        now = [copied[0], (u2, "***", 7), (x3, "***", 3), copied[4], (u6, "***", 6)]
        later = [(u2, "***", -2), (x3, "***", 3), (u6, "***", 6), (u2, "***", 7)]
        shown = ("email", "phone", "n")
        assert found(pipeline, "clone", *shown) == sorted(now, key=str)
        assert found(pipeline, "append", *shown) == sorted(copied + later, key=str)
        ended = [(u2, 2, False), (u2, -2, False), (u3, 3, True), (u4, 4, True)]
        history = found(pipeline, "history", "email", "n", "kvsz_deleted")
        assert history == sorted([(name, n, False) for name, _, n in now] + ended, key=str)
        events = [("R", name, n, None) for name, _, n in copied]
        events += [
            ("U", u2, -2, None),
            ("U", x3, 3, u3),
            ("D", u4, None, None),
            ("I", u6, 6, None),
            ("U", u2, 7, None),
        ]
        told = [
            (op, name, n, None if old is None else dict(old)["email"])
            for op, name, n, old in found(pipeline, "changelog", "_op", "email", "n", "_old_key")
        ]
        assert sorted(told, key=str) == sorted(events, key=str)


def test_a_column_that_goes_while_kuvasz_is_down_stops_its_table_alone(
    database: Database, lake_folder: LakeFolder
) -> None:
    rules = {
        "filter": "n > 0",
        "set": {"id": "id", "n": "n + 1"},
        "mask": {"n": "hmac"},
        "decimals": {"n": "decimal(9,2)"},
    }
    tables = {option: {option: rule} for option, rule in rules.items()}
    for name in (*tables, "others"):
        kind = {"mask": "text", "decimals": "numeric"}.get(name, "int")
        database.execute(f'CREATE TABLE "{name}" (id int PRIMARY KEY, n {kind})')
    config = lake_folder.config(group({None: database}, {**tables, "others": None}), mask_secret=SECRET)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    for name in tables:
        what = "ALTER n TYPE text" if name == "decimals" else "RENAME n TO m"
        database.execute(f'ALTER TABLE "{name}" {what}')
    database.execute("INSERT INTO others VALUES (1, 1)")
    with Pipeline(config, lake_folder) as pipeline:
        for name in tables:
            pipeline.wait_state("shop", f"shop.{name}", State.ERROR)
        wait_until(lambda: pipeline.rows("others") == [(1, 1)], "the other table goes on")
        assert all("hint:" in error for error in pipeline.errors())


@pytest.mark.parametrize("entry", [{}, {"set": {"email": "email", "n": "n"}}, {"partitions_regex": "use.*"}], ids=str)
def test_a_redacted_key_is_told_with_its_place(
    database: Database, lake_folder: LakeFolder, entry: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute("CREATE TABLE users (email text PRIMARY KEY, n int)")
    config = lake_folder.config(group({"eu": database}, {"users": {**entry, "mask": {"email": "redact"}}}))
    file = lake_folder.folder / "map.yaml"
    column = file.read_text().index('"redact"') + 1
    place = f"{file}:1:{column}"
    why = "mask redacts email, which identifies the rows: all of them would be one"
    for verb, code in (("check", 3), ("plan", 4)):
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, "--config", str(file)])
        assert ended.value.code == code
        told = capsys.readouterr().out
        assert f"{place}: {why}" in told, told
        assert "hmac keeps rows apart" in told
    with pytest.raises(ExceptionGroup) as caught, Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_end()
    (error,) = caught.value.exceptions
    assert isinstance(error, MapMismatch)
    assert str(error) == f"source shop_eu, table public.users: {why}\nhint: hmac keeps rows apart"
    loaded = load(file, {})
    assert loaded.place_of(error.database, error.table, error.option) == f"{place}: "


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"filter": "contry > 'x'"}, "column 'contry' that the table does not have: did you mean 'country'?"),
        ({"filter": "n + 1"}, "filter: 'n + 1' is int, not a condition"),
        ({"filter": "n +"}, "PARSE_SYNTAX_ERROR"),
        ({"filter": "rand() < 0.5"}, "gives another value each time"),
        ({"filter": "n > (SELECT 1)"}, "looks at more than one row"),
        ({"set": {"id": "id", "c": "count(n)"}}, "set.c: 'count(n)' does not give one value for each row"),
        ({"set": {"id": "id", "c": "explode(tags)"}}, "does not give one value for each row"),
        ({"set": {"id": "id", "c": "named_struct('a', n)"}}, "gives struct<a:int>, which has no column in the lake"),
        ({"set": {"kind": "kind"}}, "`set` leaves out id, which is part of the table's key"),
        ({"set": {"id": "id", "c": "lower(n, 1)"}}, "WRONG_NUM_ARGS"),
        ({"filter": "n > N"}, "expressions name the columns 'n' and 'N', which Spark SQL takes for one"),
        ({"filter": "n > 1", "set": {"id": "id", "c": "N + 1"}}, "expressions name the columns 'N' and 'n', which"),
        ({"set": {"id": "id", "k": "lower(kind)"}, "key": ["k"]}, "`key` names k, which is made of kind"),
        ({"mask": {"kid": "redact"}}, "`mask` names a column 'kid' that is not there: did you mean 'kind'?"),
    ],
)  # fmt: skip
def test_a_wrong_expression_ends_the_start(
    database: Database, lake_folder: LakeFolder, table: dict, told: str
) -> None:
    database.execute(ORDERS)
    database.execute('ALTER TABLE orders ADD "N" int')
    config = lake_folder.config(group({"eu": database}, {"orders": table}))
    with pytest.raises(ExceptionGroup) as caught, Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_end()
    (error,) = caught.value.exceptions
    assert isinstance(error, ConfigError)
    assert told in str(error)
    assert "table orders of the map" in str(error)


@pytest.mark.parametrize(
    "call",
    ["reflect('java.lang.System', 'getProperty', 'user.home')", "java_method('java.lang.System', 'exit', 1)",
     "try_reflect('java.lang.System', 'getProperty', 'user.home')", "input_file_name()", "uuid()", "now()",
     "current_timestamp()", "current_date()", "current_user()", "localtimestamp()"],
)  # fmt: skip
def test_nothing_but_the_row_and_the_map_decides(spark_session: SparkSession, call: str) -> None:
    for target in (
        dataclasses.replace(changes.target(), filter=f"{call} IS NOT NULL"),
        dataclasses.replace(changes.target(), set={"id": "id", "n": f"CAST({call} AS string)"}),
    ):
        with pytest.raises(ExpressionRefused, match="gives another value each time"):
            Expressions(spark_session).project(target, changes.relation(), "source eu, table t")


@pytest.mark.parametrize(
    "call",
    ["own(id)", "upper(CAST(OWN(id) AS string))", "transform(array(body), t -> own(t))[0]",
     "{catalog}.system.bucket(4, id)", "default.own(id)", "read_files('/etc/passwd')", "from_parquet(body)",
     "from_protobuf(encode(body, 'utf-8'), 'm', '/etc/passwd')", "hash(own(n))"],
)  # fmt: skip
def test_functions_of_others_are_refused(spark_session: SparkSession, lake_folder: LakeFolder, call: str) -> None:
    """Whoever brings them into Spark: by its settings, a library, or a catalog."""
    lake_folder.config([{"database": "d", "urls": [{"url": "postgresql:///d"}], "tables": {"t": None}}])
    session = spark_session.newSession()
    session.udf.register("own", str)
    shown = call.format(catalog=lake_folder.catalog)
    columns = {"id": "id", "n": f"CAST({shown} AS string)"}
    with pytest.raises(ExpressionRefused, match=r"is no function of Spark itself|PROTOBUF"):
        Expressions(session).project(
            dataclasses.replace(changes.target(), filter=f"{shown} IS NOT NULL"), changes.relation(), "source eu"
        )
    with pytest.raises(ExpressionRefused, match=r"is no function of Spark itself|PROTOBUF"):
        Expressions(session).project(
            dataclasses.replace(changes.target(), set=columns), changes.relation(), "source eu"
        )


def test_a_function_in_the_place_of_one_of_spark_is_refused(spark_session: SparkSession) -> None:
    relation, target = (
        changes.relation(),
        dataclasses.replace(changes.target(), filter="soundex(CAST(id AS string)) = '1'"),
    )
    session = spark_session.newSession()
    Expressions(session).project(target, relation, "source eu")
    session.udf.register("soundex", str)
    with pytest.raises(ExpressionRefused, match="in the place of one of Spark itself"):
        Expressions(session).project(target, relation, "source eu")
