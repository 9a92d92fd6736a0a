from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.maps import SHOP, faults, refusal


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("lak: {}", "1:1: lak: unknown key 'lak': did you mean 'lake'?"),
        ("workers: 3", "1:1: workers: unknown key 'workers': it belongs to pipeline"),
        (
            "zzz: 3",
            "1:1: zzz: unknown key 'zzz': known are lake, spark, pipeline, maintenance, server, log, tracing, map,"
            " cuts, verify, copy, cluster, notify, databases",
        ),
        ("lake: 5", "1:7: lake: must be a mapping (key: value), not 5"),
        ("lake: [a]", "1:7: lake: must be a mapping (key: value), not a list"),
        ("lake: {typ: jdbc}", "1:8: lake.typ: unknown key 'typ': did you mean 'type'?"),
        ("lake: {type: jbdc}",
         "1:14: lake.type: must be jdbc, rest, hive or glue, not 'jbdc': did you mean 'jdbc'?"),
        ("lake: {type: }", "1:8: lake.type: must be jdbc, rest, hive or glue, not nothing"),
        ("lake: {format_version: 4}", "1:24: lake.format_version: must be 2 or 3, not 4"),
        ("lake: {format_version: 2.5}", "1:24: lake.format_version: must be a whole number, not 2.5"),
        ("lake: {format_version: .inf}", "1:24: lake.format_version: must be a whole number, not .inf"),
        ("lake: {namespace: 007}",
         "1:19: lake.namespace: must be text, not 007: put it in quotes, '007'"),
        ("lake: {namespace: 'a/b'}",
         "1:19: lake.namespace: must be names separated by dots, without / \\ ` and quotes, not 'a/b'"),
        ("lake: {name: a.b}",
         "1:14: lake.name: must be letters, digits and _ and not begin with a digit, not 'a.b'"),
        ("lake: {properties: 5}", "1:20: lake.properties: must be a mapping (key: value), not 5"),
        ("lake: {properties: {a: [1]}}", "1:24: lake.properties.a: must be text, not a list"),
        ("lake: {uri: }", "1:8: lake.uri: must be text, not nothing"),
        ("spark: {master: true}", "1:17: spark.master: must be text, not true: put it in quotes, 'true'"),
        ("spark: {master: ' '}", "1:17: spark.master: must not be empty"),
        ("pipeline: {comit_interval: 1s}",
         "1:12: pipeline.comit_interval: unknown key 'comit_interval': did you mean 'commit_interval'?"),
        ("pipeline: {commit-interval: 1s}",
         "1:12: pipeline.commit-interval: unknown key 'commit-interval': did you mean 'commit_interval'?"),
        ("pipeline: {commit_interval: 5}",
         "1:29: pipeline.commit_interval: must be a duration such as 500ms, 1s, 5m, 1h or 1d, not 5:"
         " did you mean 5s?"),
        ("pipeline: {commit_interval: 1ms}", "1:29: pipeline.commit_interval: must be at least 10ms, not 1ms"),
        ("pipeline: {commit_interval: 1d}", "1:29: pipeline.commit_interval: must be at most 1h, not 1d"),
        ("pipeline: {memory: 1XB}",
         "1:20: pipeline.memory: must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not '1XB'"),
        ("pipeline: {memory: 1kB}", "1:20: pipeline.memory: must be at least 1MB, not 1kB"),
        ("pipeline: {workers: 0}", "1:21: pipeline.workers: must be at least 1, not 0"),
        ("pipeline: {workers: two}", "1:21: pipeline.workers: must be a whole number, not 'two'"),
        ("pipeline: {workers: true}", "1:21: pipeline.workers: must be a whole number, not true"),
        ("pipeline: {workers: {a: 1}}", "1:21: pipeline.workers: must be a whole number, not a mapping"),
        ("pipeline: {copy_rows_per_second: 0}", "1:34: pipeline.copy_rows_per_second: must be at least 1, not 0"),
        ("server: {address: '8000'}",
         "1:19: server.address: must be host:port such as 127.0.0.1:8000 or [::1]:8000, not '8000'"),
        ("server: {address: 'h:99999'}",
         "1:19: server.address: must be host:port such as 127.0.0.1:8000 or [::1]:8000, not 'h:99999'"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_section_is_refused(tmp_path: Path, section: str, message: str) -> None:
    assert refusal(tmp_path, f"{section}\n{SHOP}") == f"map.yaml:{message}"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{targt: x}", "14: targt: unknown key 'targt': did you mean 'target'?"),
        ("{type: clon}",
         "20: type: must be clone, append, history or changelog, not 'clon': did you mean 'clone'?"),
        ("clone", "13: must be a mapping (key: value), not 'clone'"),
        ("{key: id}", "19: key: must be a list, not 'id': write [id]"),
        ("{key: [1]}", "20: key[0]: must be text, not 1: put it in quotes, '1'"),
        ("{partitions_regex: 'e('}",
         "32: partitions_regex: is not a regular expression: missing ), unterminated subpattern at position 1"),
        ("{filter: true}", "22: filter: must be text, not true: put it in quotes, 'true'"),
        ("{filter: ''}", "22: filter: must not be empty"),
        ("{set: [a]}", "19: set: must be a mapping (key: value), not a list"),
        ("{set: {a: 1}}", "23: set.a: must be text, not 1: put it in quotes, '1'"),
        ("{partition_by: ['day(x)']}",
         "29: partition_by[0]: has the unknown transform 'day': did you mean 'days'?"),
        ("{partition_by: ['f(x)']}", "29: partition_by[0]: has the unknown transform 'f': it must be"
                                     " years, months, days, hours, bucket or truncate"),
        ("{partition_by: ['bucket(x)']}",
         "29: partition_by[0]: has a transform with wrong arguments: write bucket(16, column)"),
        ("{partition_by: ['days(4, x)']}",
         "29: partition_by[0]: has a transform with wrong arguments: write days(column)"),
        ("{partition_by: ['bucket(0, x)']}",
         "29: partition_by[0]: has a bucket of width 0: it must be at least 1"),
        ("{partition_by: ['days(x']}", "29: partition_by[0]: must be a column or a transform such as days(at)"
                                       " or bucket(16, id), not 'days(x'"),
        ("{sort_by: ['day(x) desc']}", "24: sort_by[0]: has the unknown transform 'day': did you mean 'days'?"),
        ("{on_schema_change: halt}", "32: on_schema_change: must be agree, evolve, hold or stop, not 'halt'"),
        ("{out_of_range: clam}",
         "28: out_of_range: must be error, null or clamp, not 'clam': did you mean 'clamp'?"),
        ("{out_of_range: }", "14: out_of_range: must be error, null or clamp, not nothing"),
        ("{decimals: {a: decimal(40)}}", "28: decimals.a: must be decimal(p,s) with 1 ≤ p ≤ 38 and 0 ≤ s ≤ p,"
                                         " not 'decimal(40)'"),
        ("{decimals: {a: 'decimal(3,4)'}}", "28: decimals.a: must be decimal(p,s) with 1 ≤ p ≤ 38 and 0 ≤ s ≤ p,"
                                            " not 'decimal(3,4)'"),
        ("{target: 'a/b'}", "22: target: must be a table name in the lake, or namespace.name,"
                            " without / \\ ` and line breaks, not 'a/b'"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_table_is_refused(tmp_path: Path, table: str, message: str) -> None:
    column, _, rest = message.partition(": ")
    text = SHOP.replace("orders:", f"orders: {table}")
    dot = "" if rest.startswith("must be a mapping (key: value), not 'clone'") else "."
    path = "databases[0].tables.orders" + (dot or ": ")
    assert refusal(tmp_path, text) == f"map.yaml:6:{column}: {path}{rest}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{url: "mysql://u:geheim@h/d"}',
         "4:11: databases[0].urls[0].url: must be a PostgreSQL url such as postgresql://user@host:5432/database"),
        ('{url: geheim}',
         "4:11: databases[0].urls[0].url: must be a PostgreSQL url such as postgresql://user@host:5432/database"),
        ('{url: 5}', "4:11: databases[0].urls[0].url: must be a url such as postgresql://user@host:5432/database"),
        ('"postgresql://u:geheim@h/d"', "4:5: databases[0].urls[0]: must be a mapping (key: value),"
                                        " not what is given (not shown: it may hold a password)"),
        ("{sid: a}", "4:5: databases[0].urls[0]: the key 'url' is missing"),
        ('{url: "postgresql://u:geheim@h/d?sslmode"}',
         "4:11: databases[0].urls[0].url: has a parameter after the '?' that is not name=value"),
        ('{url: "postgresql://u:geheim@h/d?a=1&a=2"}',
         "4:11: databases[0].urls[0].url: has the parameter 'a' twice"),
        ('{url: "postgresql://u:geheim%@h/d"}',
         "4:11: databases[0].urls[0].url: has a % in user or password that is"
                                                " not followed by two hexadecimal digits: write it as %25"),
        ('{url: "postgresql://u@h/d", sid: 1}',
         "4:38: databases[0].urls[0].sid: must be text, not 1: put it in quotes, '1'"),
        ('{url: "postgresql://u@h/d", sid: ""}', "4:38: databases[0].urls[0].sid: must not be empty"),
        ('{url: "postgresql://u@h/d", Sid: a}',
         "4:33: databases[0].urls[0].Sid: unknown key 'Sid': did you mean 'sid'?"),
    ],
)  # fmt: skip
def test_a_wrong_url_is_refused_without_showing_it(tmp_path: Path, entry: str, message: str) -> None:
    text = SHOP.replace('{url: "postgresql://repl:geheim@eu1/shop", sid: eu}', entry)
    assert refusal(tmp_path, text) == f"map.yaml:{message}"


@pytest.mark.parametrize(
    "authority",
    ["u:ge@heim@h", "u:ge/heim@h", "u:geheim@h:port", "u:ge:heim/@h", "u:geheim@[::1", "u:geheim@h:1:2"],
)
def test_a_password_that_is_not_encoded_is_refused_without_showing_it(tmp_path: Path, authority: str) -> None:
    line = refusal(tmp_path, SHOP.replace("repl:geheim@eu1", authority))
    assert line == (
        "map.yaml:4:11: databases[0].urls[0].url: must be a url such as postgresql://user@host:5432/database:"
        " in user and password write @ as %40, : as %3A, / as %2F, ? as %3F and % as %25,"
        " or fill them from ${VAR}, which does it for you"
    )


def test_missing_keys_are_told_where_they_should_stand(tmp_path: Path) -> None:
    assert refusal(tmp_path, "lake: {}") == "map.yaml:1:1: the key 'databases' is missing"
    assert faults(tmp_path, "- {}") == [
        "map.yaml:1:3: databases[0]: the key 'database' is missing",
        "map.yaml:1:3: databases[0]: the key 'tables' is missing",
        "map.yaml:1:3: databases[0]: the key 'urls' is missing",
    ]


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = f"pipeline: {{workers: 0, memory: x}}\nlake: {{typ: a, typ: b}}\n{SHOP}  on_slot_lost: panic\n"
    assert faults(tmp_path, text, {"KUVASZ_SPARK__MASTR": "x"}, {"pipeline.worker": "1"}) == [
        "map.yaml:1:21: pipeline.workers: must be at least 1, not 0",
        "map.yaml:1:32: pipeline.memory: must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not 'x'",
        "map.yaml:2:8: lake.typ: unknown key 'typ': did you mean 'type'?",
        "map.yaml:2:16: lake.typ: duplicate key 'typ', first given in line 2",
        "map.yaml:9:17: databases[0].on_slot_lost: must be stop, repair or resync, not 'panic'",
        "environment KUVASZ_SPARK__MASTR: unknown option: did you mean 'KUVASZ_SPARK__MASTER'?",
        "flag --set pipeline.worker: unknown option: did you mean 'pipeline.workers'?",
    ]


@pytest.mark.parametrize(
    "section",
    [
        "lake: {properties: {jdbc.password: [geheim]}}",
        "lake: {uri: [geheim]}",
        "spark: {conf: {my.secret: {a: geheim}}}",
    ],
)
def test_no_refusal_shows_a_secret(tmp_path: Path, section: str) -> None:
    assert "geheim" not in refusal(tmp_path, f"{section}\n{SHOP}")
