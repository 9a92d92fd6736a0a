from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config import load
from kuvasz.errors import ConfigError
from tests.support.maps import SHOP, faults, refusal


def with_table(spec: str) -> str:
    return SHOP.replace("orders:", f"orders: {spec}")


def groups(*parts: tuple[str, str, str]) -> str:
    """Return a map with a group in a line: database, urls, tables."""
    return "\n".join(f"- {{database: {name}, urls: [{urls}], tables: {{{tables}}}}}" for name, urls, tables in parts)


A, B, C = ("{url: 'postgresql://a/x', sid: a}", "{url: 'postgresql://b/x', sid: b}", "{url: 'postgresql://c/x'}")


TOKEN = "name: ann, role: viewer, token: a-token-0123456789"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (f"server: {{tokens: [{{{TOKEN.replace('ann', 'local')}}}]}}",
         "1:26: server.tokens[0].name: 'local' is kuvasz's own: give it another name"),
        (f"server: {{tokens: [{{{TOKEN.replace('ann', 'nobody')}}}]}}",
         "1:26: server.tokens[0].name: 'nobody' is kuvasz's own: give it another name"),
        (f"server: {{tokens: [{{{TOKEN}}}, {{{TOKEN.replace('a-', 'b-')}}}]}}",
         "1:80: server.tokens[1].name: there are two tokens of 'ann': give each a name"),
        (f"server: {{tokens: [{{{TOKEN}}}, {{{TOKEN.replace('ann', 'bob')}}}]}}",
         "1:106: server.tokens[1].token: is the token of 'ann', too: nobody could tell who asks"),
        ("lake: {type: rest}", "1:7: lake.uri: a rest catalog needs a uri that begins with http:// or https://"),
        ("lake: {type: hive, uri: 'x'}", "1:25: lake.uri: a hive catalog needs a uri that begins with thrift://"),
        ("lake: {uri: 'mysql://u:geheim@h/d'}",
         "1:13: lake.uri: a jdbc catalog needs a uri that begins with jdbc:sqlite: or jdbc:postgresql:"),
        ("lake: {type: glue}",
         "1:7: lake.warehouse: a glue catalog needs a warehouse in a store, such as s3://bucket/folder"),
        ("lake: {type: glue, warehouse: 's3://b', namespace: a.b}",
         "1:52: lake.namespace: a glue catalog has namespaces of one level only"),
        ("lake: {type: glue, warehouse: 's3://b', about: a.b}",
         "1:48: lake.about: a glue catalog has namespaces of one level only"),
        ("lake: {namespace: Shop, about: shop}",
         "1:32: lake.about: must not be that of the targets: choose another one, such as _kuvasz"),
        ("lake: {warehouse: ''}", "1:19: lake.warehouse: must not be empty"),
        ("pipeline: {memory: 16MB, commit_bytes: 32MB}",
         "1:40: pipeline.commit_bytes: must not exceed pipeline.memory (16MB), but is 32MB"),
        ("pipeline: {transaction_spill_bytes: 2GB}",
         "1:37: pipeline.transaction_spill_bytes: must not exceed pipeline.memory (1GB), but is 2GB"),
        ("spark: {master: 'spark://m:7077'}",
         "1:17: spark.master: a standalone cluster needs the `spark.authenticate.secret` of its master and workers in"
         " `spark.conf`: whoever reaches the cluster's ports could run code there and read every row; where"
         " nobody else does, `spark.allow_insecure: true` lets it be"),
    ],
)  # fmt: skip
def test_sections_agree_with_themselves(tmp_path: Path, section: str, message: str) -> None:
    assert refusal(tmp_path, f"{section}\n{SHOP}") == f"map.yaml:{message}"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{columns: [a], exclude: [b]}", "28: .exclude: cannot be given together with columns"),
        ("{set: {a: b}, columns: [a]}", "27: .columns: cannot be given together with set"),
        ("{set: {a: b}, exclude: [a]}", "27: .exclude: cannot be given together with set"),
        ("{type: changelog, key: [a]}",
         "31: .key: makes no sense for a changelog: every change is a row of its own there"),
        ("{columns: [a], key: [b]}", "34: .key[0]: 'b' is not among the columns"),
        ("{exclude: [b], key: [a, b]}", "37: .key[1]: 'b' is excluded"),
        ("{set: {a: x}, key: [x]}", "33: .key[0]: 'x' is not among the columns of set"),
        ("{type: append, partition_removed: delete}",
         "47: .partition_removed: must be keep for a table of type append, which deletes no rows"),
        ("{partitions_regex: 'a_.*', partition_removed: delete}",
         "59: .partition_removed: must be keep with partitions_regex: the rows of a table that is dropped stay"),
        ("{partitions_regex: 'a_.*', initial: skip}",
         "49: .initial: must be copy with partitions_regex: what a table has when it appears is new"),
        ("{initial: from_lsn}", "13: .from_lsn: goes with `initial: from_lsn`, which needs it"),
        ("{from_lsn: {eu: 0/1}}", "24: .from_lsn: goes with `initial: from_lsn`, which needs it"),
        ("{partitions_regex: 'a_.*', initial: from_lsn, from_lsn: {eu: 0/1}}",
         "49: .initial: must be copy with partitions_regex: what a table has when it appears is new"),
        ("{key: [a, a]}", "23: .key[1]: names 'a' twice"),
        ("{key: []}", "19: .key: must name at least one column"),
        ("{columns: []}", "23: .columns: must name at least one column"),
        ("{set: {}}", "19: .set: must name at least one column"),
        ("{partition_by: [a, a]}", "32: .partition_by[1]: names 'a' twice"),
        ("{set: {A: x, a: y}}", "26: .set.a: differs from 'A' in case only, which Spark does not see"),
        ("{set: {sid: x}}",
         "20: .set.sid: is a column that kuvasz itself adds to a clone table: choose another name"),
        ("{type: history, set: {KVSZ_End: x}}",
         "35: .set.KVSZ_End: is a column that kuvasz itself adds to a history table: choose another name"),
        ("{types: {a: string}, decimals: {a: 'decimal(5,1)'}}", "45: .decimals.a: is in types, too"),
        ("{key: [a, b], mask: {a: redact}}",
         "37: .mask.a: is part of the key, of which redact would make one row of all: hmac keeps them apart"),
        ("{mask: {a: 'hmac:'}}",
         "24: .mask.a: must be redact, hmac, or hmac:name with letters, digits, and . _ - in the name, not 'hmac:'"),
        ("{type: changelog, set: {_op: x}}",
         "37: .set._op: is a column that kuvasz itself adds to a changelog table: choose another name"),
    ],
)  # fmt: skip
def test_options_of_a_table_agree(tmp_path: Path, table: str, message: str) -> None:
    column, _, rest = message.partition(": ")
    assert refusal(tmp_path, with_table(table)) == f"map.yaml:6:{column}: databases[0].tables.orders{rest}"


def test_types_reserve_only_their_own_columns(tmp_path: Path) -> None:
    assert faults(tmp_path, with_table("{set: {_op: x, kvsz_end: y}}")) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("a.b.c", '"a.b.c": has 3 parts, not a schema and a name: put a name that has a dot in double quotes'),
        ("a.", '"a.": is not a name: a dot separates schema and table, double quotes protect a dot'),
        ("'\"a\"b'", "\"a\"b: is not a name: 'b' follows the closing double quote"),
        ("a/b", "a/b: cannot be a table's name in the lake: give it another one with 'target'"),
    ],
)
def test_a_table_needs_a_name(tmp_path: Path, key: str, message: str) -> None:
    assert refusal(tmp_path, SHOP.replace("orders:", f"{key}:")) == f"map.yaml:6:5: databases[0].tables.{message}"


def test_one_table_cannot_have_two_entries(tmp_path: Path) -> None:
    text = SHOP + "    public.orders: {target: other}\n    '\"orders\"': {target: third}\n"
    assert faults(tmp_path, text) == [
        "map.yaml:7:5: databases[0].tables.\"public.orders\": is the same table as 'orders'",
        "map.yaml:8:5: databases[0].tables.\"orders\": is the same table as 'orders'",
    ]


def test_nothing_to_do_is_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, "[{database: a, urls: [], tables: {}}]") == [
        "map.yaml:1:22: databases[0].urls: must name at least one url",
        "map.yaml:1:34: databases[0].tables: must name at least one table",
    ]
    assert refusal(tmp_path, "databases: []") == "map.yaml:1:12: databases: must name at least one database"


def test_a_map_that_programs_write_may_be_empty_and_has_one_group_of_a_name(tmp_path: Path) -> None:
    writable = "map: {writable: true}\ndatabases:\n"
    assert faults(tmp_path, "map: {writable: true}\ndatabases: []") == []
    assert faults(tmp_path, writable + groups(("a", "", ""), ("b", C, ""))) == []
    assert faults(tmp_path, writable + groups(("a", "", ""), ("a", "", ""))) == [
        "map.yaml:4:14: databases[1].database: is the name of databases[0], too: with map.writable each group needs"
        " its own"
    ]
    assert refusal(tmp_path, "cluster: {coordinator: 'postgresql:///c'}\n" + writable + groups(("a", "", ""))) == (
        "map.yaml:2:17: map.writable: cannot be true with cluster.coordinator:"
        " every process has a map file of its own"
    )


def test_a_cluster_is_named_otherwise_than_those_of_it_that_read(tmp_path: Path) -> None:
    for name, is_taken in (("prod", False), ("prod/reader", False), ("prod/read", True), ("prod/read/a", True)):
        found = faults(tmp_path, f"cluster: {{name: {name}}}\ndatabases:\n{groups(('d', C, 't: '))}")
        assert ["must not have /read in it" in fault for fault in found] == [True] * is_taken


def test_a_group_of_a_log_applies_what_others_have_staged(tmp_path: Path) -> None:
    rest = f"databases:\n{groups(('d', C, 't: '))}"
    log = "coordinator: 'postgresql:///c', log: /l"
    for cluster, told in (
        ("{group: blue}", "cluster.group: needs cluster.log"),
        (f"{{group: blue, {log}}}", "cluster.group: needs cluster.role: apply"),
        (f"{{group: blue, role: read, {log}}}", "cluster.group: needs cluster.role: apply"),
        (f"{{group: a/b, role: apply, {log}}}", "cluster.group: must not have / in it"),
        (f"{{name: prod/group, {log}}}", "cluster.name: must not have /group in it, which stands for groups"),
    ):
        (fault,) = faults(tmp_path, f"cluster: {cluster}\n{rest}")
        assert told in fault
    assert faults(tmp_path, f"cluster: {{group: blue, role: apply, {log}}}\nverify: {{every: 1d}}\n{rest}") == []


def test_indexes_are_kept_where_there_are_others(tmp_path: Path) -> None:
    rest = f"databases:\n{groups(('d', C, 't: '))}"
    (fault,) = faults(tmp_path, f"cluster: {{indexes: /i}}\n{rest}")
    assert "cluster.indexes: needs cluster.coordinator" in fault
    assert faults(tmp_path, f"cluster: {{coordinator: 'postgresql:///c', indexes: /i}}\n{rest}") == []
    assert faults(tmp_path, f"cluster: {{indexes: off}}\n{rest}") == []


def test_what_the_lake_is_not_to_show_is_staged_with_a_secret_alone(tmp_path: Path) -> None:
    log = "cluster: {coordinator: 'postgresql:///c', log: /l}\n"
    for option in ("mask: {a: redact}", "exclude: [a]", "columns: [a]"):
        rest = f"databases:\n{groups(('d', C, f't: {{{option}}}'))}"
        (fault,) = faults(tmp_path, log + rest)
        assert "cannot be given with cluster.log" in fault
        assert fault.endswith("set pipeline.seal_secret, or leave one of the two out")
        assert faults(tmp_path, f"{log}pipeline: {{seal_secret: sixteen characters}}\n{rest}") == []


@pytest.mark.parametrize("option", ["mask_secret", "seal_secret", "earlier_seal_secret"])
def test_a_secret_that_can_be_guessed_is_refused_and_not_shown(tmp_path: Path, option: str) -> None:
    fault = refusal(tmp_path, f"pipeline: {{{option}: fifteen letters}}\n{SHOP}")
    assert fault == f"map.yaml:1:{13 + len(option) + 1}: pipeline.{option}: must have at least 16 characters"


def test_several_urls_need_different_sids(tmp_path: Path) -> None:
    assert faults(tmp_path, groups(("d", f"{A}, {C}, {B.replace('sid: b', 'sid: a')}", "t: "))) == [
        "map.yaml:1:59: databases[0].urls[1]: a sid is needed, because the group has several urls",
        "map.yaml:1:117: databases[0].urls[2].sid: the sid 'a' is that of urls[0] already",
    ]
    assert faults(tmp_path, groups(("d", C, "t: "))) == []


def test_one_url_cannot_come_twice(tmp_path: Path) -> None:
    twice = A.replace("sid: a", "sid: b")
    assert refusal(tmp_path, groups(("d", f"{A}, {twice}", "t: "))) == (
        "map.yaml:1:65: databases[0].urls[1].url: is the same as that of urls[0]: its rows would come twice"
    )


def test_two_sources_cannot_share_a_slot(tmp_path: Path) -> None:
    text = groups(("x", A, "t: "), ("X", B.replace("sid: b", "sid: A"), "u: "), ("x_a", C, "v: "))
    assert faults(tmp_path, text) == [
        "map.yaml:2:55: databases[1].urls[0].sid: its slot would be called kuvasz_x_a, as that of"
        " databases[0].urls[0]: change the sid",
        "map.yaml:3:26: databases[2].urls[0]: its slot would be called kuvasz_x_a, as that of"
        " databases[0].urls[0]: change the sid",
    ]


def test_two_tables_of_a_group_cannot_share_a_target(tmp_path: Path) -> None:
    text = SHOP + "    billing.orders:\n    c: {target: orders}\n"
    tail = (
        "the target kuvasz.orders is that of 'orders' already: give one of them another name with 'target',"
        " or join them with 'partitions_regex'"
    )
    assert faults(tmp_path, text) == [
        f'map.yaml:7:5: databases[0].tables."billing.orders": {tail}',
        f"map.yaml:8:17: databases[0].tables.c.target: {tail}",
    ]


def test_targets_cannot_differ_in_case_only(tmp_path: Path) -> None:
    assert refusal(tmp_path, SHOP + "    Orders:\n") == (
        "map.yaml:7:5: databases[0].tables.Orders: the target kuvasz.Orders differs from kuvasz.orders in case"
        " only, which many catalogs do not see: give one of them another name with 'target'"
    )


def test_groups_share_a_target_if_their_sids_differ(tmp_path: Path) -> None:
    assert faults(tmp_path, groups(("d", A, "t: "), ("e", B, "t: "))) == []
    assert refusal(tmp_path, groups(("d", A, "t: "), ("e", C, "t: "))) == (
        "map.yaml:2:24: databases[1].urls[0]: a sid is needed, because the target kuvasz.t is fed by other"
        " databases too"
    )
    same = B.replace("sid: b", "sid: a")
    assert refusal(tmp_path, groups(("d", A, "t: "), ("e", same, "t: "))) == (
        "map.yaml:2:55: databases[1].urls[0].sid: the sid 'a' feeds the target kuvasz.t from databases[0] already:"
        " its rows could not be told apart"
    )
    assert faults(tmp_path, groups(("d", A, "t: "), ("e", same, "u: "))) == []


def test_groups_that_share_a_target_agree_on_its_shape(tmp_path: Path) -> None:
    text = groups(("d", A, "t: {key: [id]}"), ("e", B, "t: {type: history}"))
    assert faults(tmp_path, text) == [
        "map.yaml:2:72: databases[1].tables.t: key of the target kuvasz.t is not the same in databases[0]",
        "map.yaml:2:79: databases[1].tables.t.type: type of the target kuvasz.t is not the same in databases[0]",
    ]


def test_a_target_takes_several_tables_of_each_source_or_of_none(tmp_path: Path) -> None:
    regex = "t: {partitions_regex: 't_.*'}"
    assert refusal(tmp_path, groups(("x", A, regex), ("y", B, "t: "))) == (
        "map.yaml:2:69: databases[1].tables.t: databases[0] feeds the target kuvasz.t too: both need partitions_regex"
    )
    assert faults(tmp_path, groups(("x", A, regex), ("y", B, regex.replace("t_", "u_")))) == []


@pytest.mark.parametrize("choice", ["reject", "keep"])
def test_what_is_rejected_needs_a_place(tmp_path: Path, choice: str) -> None:
    text = SHOP.replace("orders:", f"orders: {{on_bad_value: {choice}}}", 1)
    found = refusal(tmp_path, text)
    assert found.endswith(
        "orders.on_bad_value: rejected rows are kept in a table about the lake: name its namespace with `lake.about`"
    ), found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("deletes: soft, type: history", "must be hard for a table of type history"),
        ("deletes: soft, on_bad_value: reject", "cannot be soft with `on_bad_value: reject`: a rejected row"),
        ("deletes: soft, on_bad_value: keep", "cannot be soft with `on_bad_value: keep`: a rejected row"),
        ("type: history, on_bad_value: keep", "cannot be keep for a table of type history"),
        ("deletes: soft, set: {id: id, _deleted_at: n}", "is a column that kuvasz itself adds to a clone table"),
    ],
)  # fmt: skip
def test_deleted_rows_stay_in_clones_alone(tmp_path: Path, options: str, message: str) -> None:
    text = SHOP.replace("orders:", f"orders: {{{options}}}", 1)
    found = refusal(tmp_path, f"lake: {{about: _kuvasz}}\n{text}")
    assert message in found, found


def test_no_target_stands_among_the_tables_about_the_lake(tmp_path: Path) -> None:
    text = SHOP.replace("orders:", "orders: {target: _Kuvasz.commits}", 1)
    found = refusal(tmp_path, f"lake: {{about: _kuvasz}}\n{text}")
    assert found.endswith("the target _Kuvasz.commits is in the namespace of `lake.about`: choose another one"), found


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("crm.t: ", "\"crm.t\": names a schema, and a url takes those like t_(.+): write the table's name alone,"
         " or give tables of one schema a group of their own"),
        ("t: {partitions_regex: 't_.*'}",
         "t.partitions_regex: cannot be given together with schemas of a url: a sid has one table of a target"),
        ("t: {partition_removed: delete}",
         "t.partition_removed: must be keep with schemas of a url: the rows of a schema that is dropped stay"),
        ("t: {initial: skip}",
         "t.initial: must be copy with schemas of a url: what a tenant has when it appears is new"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_with_a_schema_per_tenant(tmp_path: Path, tables: str, message: str) -> None:
    text = groups(("a", "{url: 'postgresql://c/x', schemas: 't_(.+)'}", tables))
    assert refusal(tmp_path, text).endswith(f"databases[0].tables.{message}")


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ("postgresql://", "names no user"),
        ("postgresql:///?sslmode=require", "names no user"),
        ("postgresql://slots:geheim@db1", "names a server or a database"),
        ("postgresql://slots:geheim@/shop", "names a server or a database"),
        ("postgresql://slots:geheim@:5433", "names a server or a database"),
        ("postgresql://slots:geheim@/?host=db1", "names a server or a database"),
        ("postgresql://slots:geheim@/?dbname=shop", "names a server or a database"),
        ("mysql://slots:geheim@", "must be a PostgreSQL url"),
    ],
)
def test_who_replicates_is_a_role_and_no_place(tmp_path: Path, role: str, told: str) -> None:
    found = refusal(tmp_path, groups(("a", f"{{url: 'postgresql://a/x', replication_url: '{role}'}}", "t: ")))
    assert f"databases[0].urls[0].replication_url: {told}" in found
    assert "geheim" not in found


@pytest.mark.parametrize(
    "role",
    [
        "postgresql://slots@",
        "postgresql://slots:pw@/",
        "postgresql:///?user=slots",
        "postgresql://slots@?sslcert=/c&sslkey=/k",
    ],
)
def test_who_replicates_says_who_it_is(tmp_path: Path, role: str) -> None:
    assert not faults(tmp_path, groups(("a", f"{{url: 'postgresql://a/x', replication_url: '{role}'}}", "t: ")))


@pytest.mark.parametrize(("schemas", "parts"), [("tenant_.*", 0), ("(a|b)_(.+)", 2), ("(?:a|b)_.+", 0)])
def test_schemas_capture_one_sid(tmp_path: Path, schemas: str, parts: int) -> None:
    text = groups(("a", f"{{url: 'postgresql://c/x', schemas: '{schemas}'}}", "t: "))
    assert f"schemas: has {parts} parts in parentheses, and needs one for the sid" in refusal(tmp_path, text)


def test_tenants_stand_beside_sources_with_a_sid(tmp_path: Path) -> None:
    tenants = "{url: 'postgresql://c/x', schemas: 't_(.+)'}"
    assert not faults(tmp_path, groups(("a", tenants, "t: "), ("b", A, "t: ")))
    assert not faults(tmp_path, groups(("a", f"{A}, {tenants.replace('schemas', 'sid: c, schemas')}", "t: ")))
    assert "a sid is needed" in refusal(tmp_path, groups(("a", f"{A}, {tenants}", "t: ")))


@pytest.mark.parametrize("catalog", ["hive", "glue"])
def test_a_catalog_that_changes_one_table_at_a_time_has_no_group_that_changes_at_once(
    tmp_path: Path, catalog: str
) -> None:
    uri = {"hive": "thrift://c", "glue": "x"}[catalog]
    lake = f"lake: {{type: {catalog}, uri: '{uri}', warehouse: 's3://b/w'}}"
    map_ = f"{lake}\ndatabases:\n- {{database: shop, consistency: group, urls: [{A}], tables: {{a: }}}}\n"
    assert faults(tmp_path, map_) == [
        "map.yaml:3:33: databases[0].consistency: cannot be group in a"
        f" {catalog} catalog, which changes one table at a time: use a jdbc or rest catalog, or leave it at table"
    ]


def test_no_branch_that_is_written_is_set_to_states_of_another(tmp_path: Path) -> None:
    """`kuvasz maintain --full` would set it back, and what came meanwhile would be gone from it."""
    tables = "a: {branch: clean}, 'b*': {branch: clean}"
    map_ = f"lake: {{branch: clean}}\ndatabases:\n{groups(('shop', A, tables))}\n"
    told = faults(tmp_path, map_ + "maintenance: {clean_branch: true}\n")
    why = "`maintenance.clean_branch` sets this branch to states of its own: choose another one"
    assert [one.partition(": ")[2] for one in told] == [
        f"lake.branch: {why}", f"databases[0].tables.a.branch: {why}", f"databases[0].tables.b*.branch: {why}"
    ]  # fmt: skip
    assert not faults(tmp_path, map_)


def test_a_group_that_changes_at_once_shares_no_target(tmp_path: Path) -> None:
    map_ = groups(("shop", A, "a: "), ("store", B, "a: ")).replace("shop,", "shop, consistency: group,")
    assert faults(tmp_path, map_) == [
        "map.yaml:1:33: databases[0].consistency: cannot be group, because the target kuvasz.a is fed by databases[1]"
        " too: give the tables of one of them other targets, or put their urls into one group"
    ]


PROPERTIES = [
    ("{write.parquet.compression-codec: rar}",
     "must be one of zstd, snappy, gzip, lz4, uncompressed, not 'rar'"),
    ("{write.parquet.compression-level: 99}", "must be a whole number from 1 to 9, not '99'"),
    ("{write.parquet.compression-codec: lz4, write.parquet.compression-level: 3}", "lz4 has no level: zstd, gzip do"),
    ("{write.parquet.row-group-size-bytes: 9}",
     "cannot be set: kuvasz goes by write.parquet.compression-codec and -level alone"),
    ("{format-version: 2}", "cannot be set: `lake.format_version` says it"),
    ("{kuvasz.key: id}", "cannot be set: kuvasz keeps its own notes there"),
]  # fmt: skip


@pytest.mark.parametrize(("properties", "message"), PROPERTIES)
def test_properties_that_kuvasz_goes_by_are_refused(tmp_path: Path, properties: str, message: str) -> None:
    assert message in refusal(tmp_path, with_table(f"{{properties: {properties}}}"))


def test_properties_that_are_anybodys_are_taken(tmp_path: Path) -> None:
    properties = "{owner: ann, read.split.target-size: 1000, write.parquet.compression-codec: gzip}"
    assert faults(tmp_path, with_table(f"{{properties: {properties}, location: 's3://elsewhere/orders'}}")) == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("orders", "must be a url such as s3://lake/items, or an absolute path, not 'orders'"),
        (
            "/srv/lake/wh/shop/orders",
            "lies in the warehouse, or the warehouse in it: each target needs a place of its own",
        ),
        ("/srv/lake/", "lies in the warehouse, or the warehouse in it: each target needs a place of its own"),
    ],
)
def test_a_location_is_a_place_of_its_own(tmp_path: Path, location: str, message: str) -> None:
    text = "lake: {warehouse: /srv/lake/wh}\n" + with_table(f"{{location: {location}}}")
    assert message in refusal(tmp_path, text)


def test_two_targets_do_not_lie_in_each_other(tmp_path: Path) -> None:
    tables = "orders: {location: '/a/b'}, items: {location: '/a/b/c'}"
    assert "lies in the location of kuvasz.orders" in refusal(tmp_path, groups(("shop", C, tables)))
    assert faults(tmp_path, groups(("shop", C, tables.replace("b/c", "bc")))) == []
    tables = "orders: {location: 's3://a/b/'}, items: {location: 's3://a/b/c'}"
    assert "lies in the location of kuvasz.orders" in refusal(tmp_path, groups(("shop", C, tables)))

    for one, other in (("s3://a/b", "s3a://a/b"), ("/a/b", "/a/x/../b"), ("/a/b", "file:///a/./b/c")):
        tables = f"orders: {{location: '{one}'}}, items: {{location: '{other}'}}"
        assert "lies in the location of kuvasz.orders" in refusal(tmp_path, groups(("shop", C, tables)))
    assert faults(tmp_path, with_table("{location: 's3://a/..b'}")) == []


@pytest.mark.parametrize(
    ("key", "table", "expected"),
    [
        ("items", {"except": ["a"]}, "except: is for a pattern, such as public.*: this is the name of one table"),
        ("*", {"partitions_regex": "a.*"}, "partitions_regex: cannot be given with a pattern"),
        ("*", {"location": "s3://lake/x"}, "location: cannot be given with a pattern"),
        ("*", {"target": "all"}, "target: must have {table} in it"),
        ("*", {"except": ["a.b.c"]}, "except[0]: has 3 parts"),
    ],
)
def test_a_pattern_is_for_many_tables(key: str, table: dict[str, Any], expected: str) -> None:
    group = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {key: table}}
    with pytest.raises(ConfigError) as refused:
        load.of_text(json.dumps({"databases": [group]}), {}, Path())
    assert expected in str(refused.value)


def test_a_pattern_and_a_schema_per_tenant_do_not_go_together() -> None:
    group = {"database": "s", "urls": [{"url": "postgresql:///s", "schemas": "t_(.+)"}], "tables": {"*": None}}
    with pytest.raises(ConfigError, match="cannot be a pattern with schemas of a url"):
        load.of_text(json.dumps({"databases": [group]}), {}, Path())


def test_tables_may_have_some_paces_of_their_own_and_not_any_number(tmp_path: Path) -> None:
    tables = ", ".join(f"t{n}: {{commit_interval: {n + 1}m}}" for n in range(8))
    assert faults(tmp_path, groups(("shop", C, tables))) == []
    told = "tables may have 8 different ones at most: give several the same"
    assert told in refusal(tmp_path, groups(("shop", C, f"{tables}, more: {{commit_interval: 10m}}")))


def test_a_group_that_changes_at_once_has_one_pace(tmp_path: Path) -> None:
    text = groups(("shop", C, "orders: {commit_interval: 10m}")).replace("urls:", "consistency: group, urls:")
    assert "all tables of the group change in one commit" in refusal(tmp_path, text)


HOOK = "secret: a-secret-0123456789"


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("ftp://geheim.example.com", "must be a url such as https://hooks.example.com/kuvasz"),
        ("https://", "must be a url such as https://hooks.example.com/kuvasz"),
        ("https://u:geheim@hooks.example.com/", "must not have a user or password: requests are signed"),
        ("file:///etc/geheim", "must be a url such as https://hooks.example.com/kuvasz"),
    ],
)
def test_a_webhook_is_a_url_of_the_web(tmp_path: Path, hook: str, message: str) -> None:
    told = refusal(
        tmp_path, f"notify: [{{webhook: '{hook}', {HOOK}}}]\ndatabases:\n" + groups(("shop", C, "orders: "))
    )
    assert message in told
    assert "geheim" not in told


def test_two_webhooks_have_two_names(tmp_path: Path) -> None:
    hooks = f"{{webhook: 'https://h/a', {HOOK}}}, {{webhook: 'https://h/b', {HOOK}%s}}"
    text = "notify: [" + hooks + "]\ndatabases:\n" + groups(("shop", C, "orders: "))
    assert "there are two webhooks called h: give each a `name`" in refusal(tmp_path, text % "")
    assert faults(tmp_path, text % ", name: b") == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("row_filter: true", "row_filter: needs filter"),
        ("filter: a, row_filter: true, type: append", "row_filter: is for a clone"),
        ("filter: a, row_filter: true, type: history", "row_filter: is for a clone"),
        ("filter: a, row_filter: true, partitions_regex: x", "row_filter: cannot be given together with"),
        ("filter: a, row_filter: true, initial: skip", "row_filter: goes with `initial: copy`"),
    ],
)
def test_a_row_filter_is_for_what_it_leaves_as_it_is(tmp_path: Path, spec: str, message: str) -> None:
    assert message in refusal(tmp_path, with_table(f"{{{spec}}}"))
    assert faults(tmp_path, with_table("{filter: a, row_filter: true}")) == []


ROUTE = "route: {by: kind, to: 'of_{kind}', allow: [a, b], rest: others}"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ROUTE + ", target: x", "target: cannot be given together with route, which has several targets"),
        (ROUTE + ", location: /x", "location: cannot be given together with route"),
        (ROUTE + ", columns: [id], column_list: true", "column_list: cannot be given together with route"),
        (ROUTE + ", filter: a, row_filter: true", "row_filter: cannot be given together with route"),
        (ROUTE.replace("[a, b]", "[]"), "route.allow: must name at least one value"),
        (ROUTE.replace("[a, b]", "[a, b, a]"), "allow[2]: 'a' would have the target of_a, which other values have"),
        (ROUTE.replace("[a, b]", "[1, '1']"), "'1' would have the target of_1"),
        (ROUTE.replace("[a, b]", "['it''s']"), "must be a text without quotes, slashes and line breaks"),
        (ROUTE.replace("[a, b]", "[1.5]"), "must be a text without quotes"),
        (ROUTE.replace("{kind}", "kind"), "route.to: must have the value in it, as {kind} or {value}"),
        (ROUTE.replace("others", "of_a"), "route.allow[0]: 'a' would have the target of_a"),
        (ROUTE.replace("rest", "other: x, rest"), "unknown key 'other'"),
    ],
)  # fmt: skip
def test_routes_have_targets_of_their_own(tmp_path: Path, spec: str, message: str) -> None:
    found = refusal(tmp_path, with_table(f"{{{spec}}}"))
    assert message in found, found


def test_a_route_is_of_single_tables(tmp_path: Path) -> None:
    assert "cannot be given with a pattern" in refusal(
        tmp_path, groups(("shop", C, f"'public.*': {{{ROUTE}}}")).replace("public.*", "x*")
    )
    schemas = "{url: 'postgresql://c/x', schemas: 't_(.+)'}"
    assert "cannot be given with schemas of a url" in refusal(
        tmp_path, groups(("shop", schemas, f"orders: {{{ROUTE}}}"))
    )


def test_a_target_has_one_worker_whoever_feeds_it(tmp_path: Path) -> None:
    both = groups(("shop", A, f"orders: {{{ROUTE}}}"), ("store", B, f"things: {{{ROUTE}}}"))
    assert faults(tmp_path, both) == []
    alone = groups(("shop", A, f"orders: {{{ROUTE}}}"), ("store", B, "things: {target: of_a}"))
    assert "the target kuvasz.of_a is none of this route's in databases[0]" in refusal(tmp_path, alone)
