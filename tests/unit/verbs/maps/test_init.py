"""Maps that are made of a database, without a server; tests/acceptance/test_init.py has one replicated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config import load
from kuvasz.config import sources as config_sources
from kuvasz.config.patterns import expansion
from kuvasz.config.patterns.found_tables import SeenTable
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError
from kuvasz.model import Column, TableName, TableType
from kuvasz.source.catalog.inventory import Inventory
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.typemap import BUILTIN
from kuvasz.verbs.maps import init
from kuvasz.verbs.maps.init import MapOutcome, MapRequest
from tests.support.scene import CATALOG

URL = "postgresql://kuvasz:ge%2Fheim@eu1:5433/shop?sslmode=require"


def table(name: str, schema: str = "public", *columns: str, **facts: Any) -> SourceTable:
    relation = dataclasses.replace(CATALOG.relation, table=TableName(schema=schema, name=name))
    if columns:
        made = tuple(Column(name=one, pg_type=BUILTIN[25], is_key=one == columns[0]) for one in columns)
        relation = dataclasses.replace(relation, columns=made)
    return dataclasses.replace(CATALOG, relation=relation, **({"can_select": True} | facts))


def keyless(name: str) -> SourceTable:
    columns = (Column(name="v", pg_type=BUILTIN[25]),)
    relation = dataclasses.replace(CATALOG.relation, table=TableName(schema="public", name=name), columns=columns)
    return dataclasses.replace(CATALOG, relation=relation, can_update=False, can_select=True, why_no_key="no key; X;")


def view(name: str) -> SourceTable:
    return table(name, why_unsupported="it is a view", kind=TableKind.OTHER)


def inventory(*tables: SourceTable, database: str = "shop", **extensions: str) -> Inventory:
    parts = {TableName(schema="public", name=name): extension for name, extension in extensions.items()}
    return Inventory(location="kuvasz@eu1:5433/shop", database=database, tables=tables, extensions=parts)


def made(*tables: SourceTable, url: str = URL, environ: Mapping[str, str] | None = None, **asked: Any) -> MapOutcome:
    return init.draft(MapRequest(url=url, **asked), inventory(*tables), environ or {})


def source(map_: MapOutcome, environ: Mapping[str, str] | None = None) -> Source:
    given = dict.fromkeys(map_.variables, "ge/heim")
    (found,) = config_sources.resolve(load.of_text(map_.text, {**given, **(environ or {})}, Path()))
    return found


def targets(*tables: SourceTable) -> dict[str, str]:
    return {str(spec.table): spec.target for spec in source(made(*tables)).tables}


def test_the_password_is_left_to_a_variable() -> None:
    map_ = made(table("items"), sid="eu")
    assert map_.variables == {"EU_PW": "the password of kuvasz@eu1:5433/shop"}
    assert "heim" not in map_.text
    assert '{url: "postgresql://kuvasz:${EU_PW}@eu1:5433/shop?sslmode=require", sid: eu}' in map_.text
    assert source(map_).url.get() == URL
    assert map_.text.startswith(
        "# What kuvasz replicates, and how. Made by `kuvasz init` from kuvasz@eu1:5433/shop; every key:"
        " docs/configuration.md.\n"
        "# It refers to what has to be set where kuvasz runs, as it is, without any encoding:\n"
        "#   export EU_PW=…   # the password of kuvasz@eu1:5433/shop\n"
        "# Read it, then: kuvasz --config FILE check, and plan.\n"
    )


@pytest.mark.parametrize(
    ("url", "asked", "written", "variables"),
    [
        ("postgresql://kuvasz@eu1/shop", {}, "postgresql://kuvasz@eu1/shop", []),
        ("host=eu1 user=k password='a b' dbname=shop", {}, "postgresql://k:${SHOP_PW}@eu1/shop", ["SHOP_PW"]),
        (
            "postgresql://k@eu1/9-lives?password=x&sslpassword=y&sslkey=/k%20&replication=database", {},
            "postgresql://k:${_9_LIVES_PW}@eu1/9-lives?sslkey=%2Fk%20&sslpassword=${_9_LIVES_SSLPASSWORD}",
            ["_9_LIVES_PW", "_9_LIVES_SSLPASSWORD"],
        ),
        (
            "postgresql://k:x@[::1]:1,h:2/shop", {"database": "a.b"}, "postgresql://k:${A_B_PW}@[::1]:1,h:2/shop",
            ["A_B_PW"],
        ),
        ("postgresql://k:$${a}@h/d", {"sid": "…"}, "postgresql://k:${SOURCE_PW}@h/d", ["SOURCE_PW"]),
        ("postgresql://k:${MY_PW}@h/d", {}, "postgresql://k:${MY_PW}@h/d", ["MY_PW"]),
        ("${MY_URL}?sslmode=require", {}, "${MY_URL}?sslmode=require", ["MY_URL"]),
    ],
)  # fmt: skip
def test_a_url_is_written_as_a_map_has_it(
    url: str, asked: dict[str, str], written: str, variables: list[str]
) -> None:
    environ = {"MY_PW": "geheim", "MY_URL": "postgresql://k:geheim@h/d"}
    map_ = made(table("items"), url=url, environ=environ, **asked)
    assert f'{{url: "{written}"' in map_.text
    assert list(map_.variables) == variables
    assert source(map_, environ)


def test_a_file_may_hold_the_password(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("geheim")
    request = MapRequest(url="postgresql://k:${file:pw}@h/d")
    map_ = init.draft(request, inventory(table("items")), {}, tmp_path)
    assert ('"postgresql://k:${file:pw}@h/d"' in map_.text, map_.variables) == (True, {})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://k:geheim@${HOST}/d", "postgresql://k:${A}geheim@h/d", "postgresql://k:${A:-geheim}@h/d",
        "postgresql://k:${A}@h/d?sslpassword=geheim", "${A}?password=geheim", "${A:-postgresql://k:geheim@h/d}",
        "postgresql://k:geheim@h/d?password=${A}", "host=h user=k password=geheim password=${A}",
        "postgresql://k@h/d?sslpassword=geheim&sslpassword=${A}",
    ],
)  # fmt: skip
def test_a_secret_beside_references_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        made(table("items"), url=url, environ={"A": "postgresql://k@h/d", "HOST": "h"})
    assert str(error.value) == (
        "--url: something secret may stand beside its references\n"
        "hint: have ${VAR} or ${file:…} be the whole password, without a default"
    )


@pytest.mark.parametrize("url", ["${A}:geheim@h/d", "host=${A} password=geheim", "${A}://k:geheim@h/d"])
def test_what_is_no_url_for_a_map_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        made(table("items"), url=url, environ={"A": "postgresql"})
    assert "geheim" not in str(error.value)


def test_each_table_has_a_comment_and_what_a_start_takes() -> None:
    map_ = made(
        table("items", row_estimate=1200), keyless("log"), view("totals"),
        table("events", kind=TableKind.PARTITIONED),
    )  # fmt: skip
    assert (map_.tables, map_.left_out) == (3, 1)
    assert map_.text.partition("  tables:\n")[2] == (
        "    # key: id; about 1,200 rows, 8.0 kB\n"
        "    items:\n"
        "    # key: none; never analysed, 8.0 kB\n"
        "    # no key: only its INSERTs are replicated; X;\n"
        "    log: {type: append}\n"
        "    # key: id; never analysed, 8.0 kB; 0 partitions\n"
        "    events:\n"
        "    # totals:  # left out: it is a view\n"
    )
    assert [spec.config.type for spec in source(map_).tables] == [TableType.CLONE, TableType.APPEND, TableType.CLONE]


def test_a_column_that_the_lake_needs_itself_keeps_its_table_out() -> None:
    columns = table("items", "public", "id", "sid"), table("others")
    assert made(*columns).left_out == 0
    map_ = made(*columns, sid="eu")
    assert (map_.tables, map_.left_out) == (1, 1)
    assert map_.text.endswith(
        "    # # key: id; never analysed, 8.0 kB\n"
        "    # items:  # left out: table public.items has a column named sid, which the target shop.items needs"
        " itself; rename the source's column, or leave it out with `exclude: [sid]`\n"
    )


def test_names_that_would_meet_in_the_lake_are_kept_apart() -> None:
    found = targets(table("items", "a"), table("Items"), table("items"), table("a_items"), table("b.c"), table("b_c"))
    assert found == {
        "a.items": "a_items_2", "public.Items": "public_Items", "public.items": "items", "public.a_items": "a_items",
        "public.b.c": "b_c", "public.b_c": "public_b_c",
    }  # fmt: skip


def test_names_that_no_table_of_the_lake_can_have_get_others() -> None:
    found = targets(table("a/b\\c`d\n"), table(" "), table("\x01"), table('"q"'), table("${x}"), table(".."))
    assert found == {
        "public.a/b\\c`d\n": "a_b_c_d_", "public. ": "_", "public.\x01": "public__", 'public."q"': '"q"',
        "public.${x}": "${x}", "public...": "__",
    }  # fmt: skip


def test_what_is_left_out_takes_no_name_from_a_table() -> None:
    map_ = made(view("items"), table("items", "a"))
    assert [spec.target for spec in source(map_).tables] == ["items"]
    assert "    # items: {target: public_items}  # left out: it is a view\n" in map_.text


def test_tables_of_an_extension_are_left_out() -> None:
    map_ = init.draft(MapRequest(url=URL), inventory(table("items"), table("refs"), refs="postgis"), {})
    assert "    # refs:  # left out: it is a part of the extension postgis\n" in map_.text


def test_some_tables_may_be_asked_for() -> None:
    tables = table("a"), table("ab"), table("a", "x")
    assert [str(spec.table) for spec in source(made(*tables, tables=("*.*",), excepted=("x.*",))).tables] == [
        "public.a", "public.ab",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"^no table is meant by 'q'\n"):
        made(*tables, excepted=("q",))


def test_patterns_stand_for_the_tables_that_they_take_in() -> None:
    tables = (
        table("items", row_estimate=1200), table("orders"), keyless("log"), view("totals"), table("Items"),
        table("notes", "billing"), table("items", "billing"), table("marked", "public", "id", "sid"),
        table("events", kind=TableKind.PARTITIONED), table("tmp_1"),
    )  # fmt: skip
    asked = {"sid": "eu", "tables": ("*", "billing.notes", "billing.i*"), "excepted": ("tmp_*",)}
    single, map_ = made(*tables, **asked), made(*tables, **asked, has_patterns=True)
    assert (map_.tables, map_.left_out) == (single.tables, single.left_out) == (7, 2)
    assert map_.text.partition("  tables:\n")[2] == (
        "    # 3 tables now, and each that comes and is like it:\n"
        "    # items: key: id; about 1,200 rows, 8.0 kB\n"
        "    # orders: key: id; never analysed, 8.0 kB\n"
        "    # events: key: id; never analysed, 8.0 kB; 0 partitions\n"
        "    '*': {except: [tmp_*, marked]}\n"
        "    # key: none; never analysed, 8.0 kB\n"
        "    # no key: only its INSERTs are replicated; X;\n"
        "    log: {type: append}\n"
        "    # key: id; never analysed, 8.0 kB\n"
        "    Items: {target: public_Items}\n"
        "    # key: id; never analysed, 8.0 kB\n"
        "    billing.notes:\n"
        "    # key: id; never analysed, 8.0 kB\n"
        "    billing.items: {target: billing_items}\n"
        "    # totals:  # left out: it is a view\n"
        "    # # key: id; never analysed, 8.0 kB\n"
        "    # marked:  # left out: table public.marked has a column named sid, which the target shop.marked needs"
        " itself; rename the source's column, or leave it out with `exclude: [sid]`\n"
    )
    config = load.of_text(map_.text, dict.fromkeys(map_.variables, "x"), Path())
    seen = [SeenTable(table=one.table, has_key=True) for one in tables if one.kind is not TableKind.OTHER]
    (found,) = config_sources.resolve(expansion.expanded(config, {"shop_eu": seen}))
    assert {spec.table: spec.target for spec in found.tables} == {
        spec.table: spec.target for spec in source(single).tables
    }, "what a map without patterns has"


def test_without_other_words_a_pattern_is_of_all_tables() -> None:
    map_ = made(table("items"), table("refs"), table("notes", "billing"), has_patterns=True)
    assert "    '*.*':\n" in map_.text
    with pytest.raises(ConfigError, match=r"^no table is meant by"):
        made(table("items"), tables=("q*",), has_patterns=True)


@pytest.mark.parametrize(
    ("database", "namespace"),
    [("shop", "shop"), ("My Shop.2", "My_Shop_2"), ("`'\"", "kuvasz"), ("läden-1", "läden-1")],
)
def test_the_namespace_is_the_databases_name(database: str, namespace: str) -> None:
    map_ = init.draft(MapRequest(url=URL), inventory(table("items"), database=database), {})
    (spec,) = source(map_).tables
    assert (spec.namespace, source(map_).database) == (namespace, database)


def test_a_name_that_no_map_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"databases\[0\]\.database: must not be empty"):
        made(table("items"), database=" ")
    with pytest.raises(ConfigError, match=r"databases\[0\]\.urls\[0\]\.sid: must not be empty"):
        made(table("items"), sid="")


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ((), "there is no table to replicate\nhint: look with `kuvasz discover` at what is there"),
        (
            (view("v"), view("w")),
            "none of the tables can be replicated: v: it is a view, and 1 more\n"
            "hint: `kuvasz discover` says why of each",
        ),
    ],
)
def test_a_map_has_tables(tables: tuple[SourceTable, ...], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        made(*tables)
    assert str(error.value) == text


def test_a_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(init.inventory, "take", lambda url: asked.append(url) or inventory(table("items")))
    path = tmp_path / "my map.yaml"
    request = MapRequest(url="postgresql://k:${PW}@h/d")
    map_ = init.run(request, path, {"PW": "a b"})
    assert (path.read_text("utf-8"), asked) == (map_.text, ["postgresql://k:a%20b@h/d"])
    assert map_.render(path) == (
        f"written: {path}: 1 tables, 0 left out\nnext: export PW=…; kuvasz --config '{path}' check"
    )
    with pytest.raises(ConfigError) as error:
        init.run(request, path, {"PW": "a b"})
    assert str(error.value) == (
        f"{str(path)!r} is there already, and is not written over\nhint: name another file with --output"
    )
    assert len(asked) == 1
    with pytest.raises(ConfigError) as error:
        init.run(request, tmp_path / "no" / "map.yaml", {"PW": "a b"})
    assert str(error.value) == (
        f"cannot write {str(tmp_path / 'no' / 'map.yaml')!r}: no such file or directory\n"
        "hint: name another file with --output"
    )
    assert init.run(request, None, {"PW": "a b"}).text == map_.text


def test_a_request_shows_no_password() -> None:
    assert "heim" not in repr(MapRequest(url=URL))
