"""What a map has otherwise: every kind of difference by itself, and any two maps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import sources
from kuvasz.config.model import Config, LakeConfig
from kuvasz.config.secrets import SecretFile, SecretText
from kuvasz.errors import ConfigError
from kuvasz.sync.rules.map_difference import (
    MapDifference,
    difference,
    ends_before,
    of_source,
    sids_of,
)  # fmt: skip
from tests.support.examples import examples

SHOP: dict[str, Any] = {
    "databases": [
        {
            "database": "shop",
            "urls": [
                {"url": "postgresql://r:old@eu/shop", "sid": "eu"}, {"url": "postgresql://us/shop", "sid": "us"}
            ],
            "tables": {"items": None, "orders": {"type": "history"}, "sales.docs": {"filter": "id > 1"}},
        },
        {"database": "crm", "urls": [{"url": "postgresql://crm/crm"}], "tables": {"leads": None}},
    ],
    "pipeline": {"workers": 2},
}  # fmt: skip


def between(change: Callable[[Any], object], before: Any = SHOP, **facts: Any) -> MapDifference:
    after = copy.deepcopy(before)
    change(after)
    old, new = Config.model_validate(before), Config.model_validate(after)
    return difference(old, new, **facts)


def told(found: MapDifference) -> dict[str, Any]:
    return {name: value for name, value in found.as_json().items() if value}


def only(source: str, **facts: list[str]) -> dict[str, Any]:
    return {"source": source, "options": [], "added": [], "removed": [], "changed": [], **facts}


def shop(map_: Any) -> Any:
    return map_["databases"][0]


def tables(map_: Any) -> Any:
    return shop(map_)["tables"]


BOTH = ("shop_eu", "shop_us")

KINDS = {
    "nothing": (lambda _: None, {}),
    "a default that is written": (lambda m: tables(m).update(items={"type": "clone"}), {}),
    "an order that means nothing": (lambda m: shop(m).update(tables=dict(reversed(tables(m).items()))), {}),
    "a source that is added": (
        lambda m: shop(m)["urls"].append({"url": "postgresql://ap/shop", "sid": "ap"}), {"added": ["shop_ap"]}
    ),
    "a group that is added": (
        lambda m: m["databases"].append(
            {"database": "erp", "urls": [{"url": "postgresql://erp/erp"}], "tables": {"parts": None}}
        ), {"added": ["erp"]},
    ),
    "a source that is removed": (lambda m: shop(m)["urls"].pop(), {"removed": ["shop_us"]}),
    "a group that is removed": (lambda m: m["databases"].pop(), {"removed": ["crm"]}),
    "a table that is added": (
        lambda m: tables(m).update(extra=None), {"changed": [only(s, added=["extra"]) for s in BOTH]}
    ),
    "a table that is removed": (
        lambda m: tables(m).pop("sales.docs"), {"changed": [only(s, removed=["sales.docs"]) for s in BOTH]}
    ),
    "a filter": (
        lambda m: tables(m).update({"sales.docs": {"filter": "id > 2"}}),
        {"changed": [only(s, changed=["sales.docs"]) for s in BOTH]},
    ),
    "another target": (
        lambda m: tables(m).update(items={"target": "things"}),
        {"changed": [only(s, changed=["items"]) for s in BOTH]},
    ),
    "how a database is written": (
        lambda m: m["databases"][1].update(database="CRM"), {"changed": [only("crm", options=["database"])]}
    ),
    "a password": (
        lambda m: shop(m)["urls"][0].update(url="postgresql://r:new@eu/shop"),
        {"changed": [only("shop_eu", options=["url"])]},
    ),
    "who replicates": (
        lambda m: shop(m)["urls"][0].update(replication_url="postgresql://slots:pw@"),
        {"changed": [only("shop_eu", options=["replication_url"])]},
    ),
    "what a lost slot means": (
        lambda m: shop(m).update(on_slot_lost="repair"),
        {"changed": [only(s, options=["on_slot_lost"]) for s in BOTH]},
    ),
    "which changes are taken": (
        lambda m: shop(m)["urls"][0].update(origin="none"), {"changed": [only("shop_eu", options=["origin"])]}
    ),
    "a pace of a new table": (
        lambda m: shop(m)["tables"].update(more={"commit_interval": "1h"}),
        {"changed": [only(s, added=["more"]) for s in BOTH]},
    ),
    "another pace": (
        lambda m: tables(m).update(items={"commit_interval": "5m"}),
        {"changed": [only(s, changed=["items"]) for s in BOTH]},
    ),
    "an option of a start": (lambda m: m.update(pipeline={"workers": 4}), {"needs_restart": ["pipeline.workers"]}),
    "an option that others follow from": (
        lambda m: m["pipeline"].update(memory="64MB"), {"needs_restart": ["pipeline.memory"]}
    ),
    "how the file is used": (lambda m: m.update(map={"watch": True}), {}),
    "who is told": (
        lambda m: m.update(notify=[{"webhook": "https://h/x", "secret": "0123456789abcdef"}]), {}
    ),
    "when cuts are made": (lambda m: m.update(cuts={"every": "1h"}), {}),
    "a namespace": (lambda m: m.update(lake={"namespace": "other"}), {"needs_restart": ["lake.namespace"]}),
}  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), KINDS.values(), ids=KINDS)
def test_each_difference_is_what_it_is(change: Callable[[Any], object], expected: dict[str, Any]) -> None:
    found = between(change)
    assert told(found) == expected
    assert found.is_empty is (not expected or set(expected) == {"needs_restart"})


ANEW = (
    "nothing was changed; choose another `target`, or take it out of the map, drop its table from the lake, and put"
    " it into the map as it is to be"
)


@pytest.mark.parametrize(
    "options",
    [
        {"type": "changelog"}, {"type": "append", "sort_by": ["id"]}, {"key": ["id"]}, {"partition_by": ["days(at)"]},
        {"deletes": "soft"}, {"branch": "staging"}, {"properties": {"owner": "ann"}},
        {"maintenance": {"target_file_size": "2MB"}},
    ],
)  # fmt: skip
def test_a_table_is_loaded_by_another_definition_when_nobody_is_left_who_feeds_it(options: dict[str, Any]) -> None:
    other = copy.deepcopy(SHOP)
    tables(other).update(items=options)
    old, new = (Config.model_validate(one) for one in (SHOP, other))
    assert told(difference(old, new))["changed"] == [only(one, changed=["items"]) for one in BOTH]
    assert set(ends_before(sources.resolve(old), sources.resolve(new))["shop_eu"]) == set(BOTH)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (None, {"partitions_regex": "items_.*"}, "partitions_regex"),
        ({"type": "append"}, {"type": "clone"}, "type"),
        ({"deletes": "soft"}, {"deletes": "hard"}, "deletes"),
        ({"deletes": "soft"}, {"type": "history"}, "type, deletes"),
    ],
)
def test_what_rows_are_known_by_and_what_keeps_the_past_cannot_become_anything_else(
    before: dict[str, Any], after: dict[str, Any], named: str
) -> None:
    known = copy.deepcopy(SHOP)
    tables(known).update(items=before)
    with pytest.raises(ConfigError) as caught:
        between(lambda m: tables(m).update(items=after), known)
    assert caught.value.message == f"target kuvasz.items: {named} cannot change while kuvasz runs"
    assert caught.value.hint == ANEW
    tables(without := copy.deepcopy(known)).pop("items")
    found = between(lambda m: tables(m).update(items=after), without)
    assert told(found)["changed"] == [only(one, added=["items"]) for one in BOTH], "nobody feeds it"


def test_what_a_start_makes_for_all_targets_of_a_group_waits_for_one() -> None:
    with pytest.raises(ConfigError) as caught:
        between(lambda m: shop(m).update(consistency="group"))
    assert caught.value.message.startswith("target kuvasz.docs: consistency cannot change while kuvasz runs; target")
    assert caught.value.hint == "nothing was changed; stop kuvasz, and start it with the new map"


def test_a_pace_for_which_there_can_be_no_worker_counts_from_the_next_start_on() -> None:
    tables(other := copy.deepcopy(SHOP)).update(items={"commit_interval": "1m"})
    old, new = (Config.model_validate(one) for one in (SHOP, other))
    (wanted,) = sources.paces(sources.resolve(new))
    busy = [f"pace {number}" for number in range(sources.MOST_PACES)]
    for paces, held in ((busy[1:], ()), (busy, ("databases.tables.commit_interval",)), ([*busy[1:], wanted], ())):
        assert difference(old, new, paces=paces).held == held


def test_a_target_goes_to_another_worker_when_nobody_is_left_who_feeds_it() -> None:
    other = copy.deepcopy(SHOP)
    tables(other).update(items={"commit_interval": "1m"})
    old, new = (sources.resolve(Config.model_validate(one)) for one in (SHOP, other))
    assert ends_before(old, old)["shop_eu"] == {"shop_eu"}
    assert ends_before(old, new)["shop_eu"] == ends_before(new, old)["shop_us"] == {"shop_eu", "shop_us"}


def test_another_sid_under_the_same_name_is_refused() -> None:
    """The lake has the rows by the sid, and the states, positions and feeds by the name."""

    def shout(map_: Any) -> None:
        shop(map_)["urls"][0]["sid"] = "EU"

    with pytest.raises(ConfigError) as caught:
        between(shout)
    assert caught.value.message == "source shop_eu: its sid was eu, and is EU"
    without, other = copy.deepcopy(SHOP), copy.deepcopy(SHOP)
    shop(without)["urls"].pop(0)
    shout(other)
    now, back = Config.model_validate(without), Config.model_validate(other)
    sids = sids_of(sources.resolve(Config.model_validate(SHOP)))
    with pytest.raises(ConfigError, match="its sid was eu"):
        difference(now, back, sids=sids)


def test_a_target_of_one_source_gets_no_second_one_without_a_restart() -> None:
    def second(map_: Any) -> None:
        map_["databases"][1]["urls"] = [
            {"url": "postgresql://crm/crm", "sid": "a"}, {"url": "postgresql://crm2/crm", "sid": "b"}
        ]  # fmt: skip

    with pytest.raises(ConfigError, match=r"target kuvasz.leads: the column sid cannot change"):
        between(second)


def test_a_map_that_needs_what_only_a_start_reads_is_refused() -> None:
    def mask(map_: Any) -> None:
        map_["pipeline"]["mask_secret"] = "sixteen or more characters"
        tables(map_)["items"] = {"mask": {"name": "hmac"}}

    with pytest.raises(ConfigError) as caught:
        between(mask)
    assert caught.value.message == (
        "with pipeline.mask_secret as they are until a restart: databases[0].tables.items.mask.name hmac needs a key:"
        " set pipeline.mask_secret"
    )


def test_tokens_count_at_once_and_all_else_of_the_server_waits_for_a_start() -> None:
    def admit(map_: Any) -> None:
        token = {"name": "ann", "role": "viewer", "token": "a-token-0123456789"}
        map_["server"] = {"tokens": [token], "metrics": "per_source"}

    found = between(admit)
    assert (found.is_empty, found.held) == (True, ("server.metrics",))
    assert [one.name for one in found.config.server.tokens] == ["ann"]
    assert found.config.server.metrics == "per_table"


def test_user_and_password_of_a_jdbc_catalog_count_at_once_and_all_else_of_the_lake_waits_for_a_start() -> None:
    def lake(uri: str, **properties: str) -> dict[str, Any]:
        return {"uri": uri, "warehouse": "s3://lake", "properties": properties}

    pg, first = "jdbc:postgresql://c/x", {"jdbc.user": "ann", "jdbc.password": "old", "s3.endpoint": "http://a"}
    before = SHOP | {"lake": lake(pg, **first)}
    wanted = first | {"jdbc.password": "new"}
    found = between(lambda map_: map_.update(lake=lake(pg, **wanted)), before)
    assert (found.is_empty, found.held, found.credentials) == (True, (), wanted)
    assert found.config.lake.properties == wanted
    found = between(lambda map_: map_.update(lake=lake(pg, **wanted | {"s3.endpoint": "http://b"})), before)
    assert (found.held, found.credentials) == (("lake.properties",), wanted)
    assert between(lambda _: None, before).credentials is None
    glue = {"type": "glue", "warehouse": "s3://lake/wh", "properties": {"token": "old"}}
    found = between(lambda map_: map_["lake"].update(properties={"token": "new"}), SHOP | {"lake": glue})
    assert (found.held, found.credentials) == (("lake.properties",), None)


@pytest.mark.parametrize(
    ("before", "after", "is_live"),
    [
        ({"token": "old"}, {"token": "new"}, True),
        ({"credential": "a:old"}, {"credential": "a:new"}, True),
        ({"credential": "a:old"}, {"token": "new"}, True),
        ({}, {"token": "new"}, False),  # it was opened without a session that could have one
        ({"token": "old"}, {}, False),
    ],
)
def test_a_rest_catalog_that_lets_us_in_does_so_by_other_credentials(
    before: dict[str, str], after: dict[str, str], *, is_live: bool
) -> None:
    rest = {"type": "rest", "uri": "https://c", "properties": before}
    found = between(lambda map_: map_["lake"].update(properties=after), SHOP | {"lake": rest})
    expected = ((), after) if is_live else (("lake.properties",), None)
    assert (found.held, found.credentials) == expected


def test_a_key_of_the_store_that_is_asked_for_again_is_no_difference() -> None:
    def lake(uri: str, key: str, file: str) -> LakeConfig:
        found = LakeConfig(uri=uri, warehouse="s3://lake", properties={"s3.access-key-id": key})
        return found.asking({"s3.access-key-id": SecretText(SecretFile(file))})

    for uri in ("jdbc:sqlite:c.db", "jdbc:postgresql://c/x"):
        before = lake(uri, "old", "/run/key")
        assert before.with_credentials(lake(uri, "new", "/run/key")).properties == {"s3.access-key-id": "new"}
        assert before.with_credentials(lake(uri, "new", "/run/other")) is before, "another place waits for a start"
        assert before.with_credentials(lake(uri, "old", "/run/key")) is before


def test_another_file_of_a_password_of_the_catalog_counts_at_once(tmp_path: Path) -> None:
    def lake(name: str) -> LakeConfig:
        found = LakeConfig(uri="jdbc:postgresql://c/x", properties={"jdbc.password": "old"})
        return found.asking({"jdbc.password": SecretText(SecretFile(str(tmp_path / name)))})

    (tmp_path / "second").write_text("new")
    found = lake("first").with_credentials(lake("second"))
    assert found.live_properties["jdbc.password"] == "new"


def test_a_level_of_the_log_counts_at_once_and_its_file_waits_for_a_start() -> None:
    found = between(lambda map_: map_.update(log={"level": "debug", "file": "/var/log/kuvasz.log"}))
    assert (found.is_empty, found.held) == (True, ("log.file",))
    assert (found.config.log.level, found.config.log.file) == ("debug", None)


def test_the_pace_of_all_counts_at_once_and_their_number_waits_for_a_start() -> None:
    found = between(lambda map_: map_.update(pipeline={"commit_interval": "10s", "workers": 4}))
    assert (found.is_empty, found.held) == (True, ("pipeline.workers",))
    assert (found.config.pipeline.commit_interval, found.config.pipeline.workers) == (10.0, 2)


def test_a_source_that_has_ended_is_begun_again() -> None:
    assert told(between(lambda _: None, ended={"crm"})) == {"changed": [only("crm", options=["it had ended"])]}
    assert told(between(lambda m: m["databases"].pop(), ended={"crm"})) == {"removed": ["crm"]}


def test_the_order_of_collapses_counts() -> None:
    before = copy.deepcopy(SHOP)
    shop(before)["tables"] = {"a": {"partitions_regex": "e.*"}, "b": {"partitions_regex": "ev.*"}, "items": None}
    found = between(lambda m: shop(m).update(tables=dict(reversed(tables(m).items()))), before)
    assert told(found)["changed"] == [only(one, options=["order of partitions_regex"]) for one in BOTH]


SPECS = st.sampled_from([None, {"filter": "id > 1"}, {"columns": ["id"]}, {"target": "elsewhere"}])
GROUPS = st.fixed_dictionaries(
    {
        "sids": st.sets(st.sampled_from("abcd"), min_size=1),
        "tables": st.dictionaries(st.sampled_from(["items", "docs", "x.y"]), SPECS, min_size=1).filter(
            lambda found: sum(spec == {"target": "elsewhere"} for spec in found.values()) < 2
        ),
        "port": st.sampled_from([1, 2]),
    }
)
MAPS = st.dictionaries(st.sampled_from(["one", "two"]), GROUPS, min_size=1)


def config(drawn: dict[str, Any]) -> Config:
    return Config.model_validate(
        {
            "databases": [
                {
                    "database": name,
                    "urls": [
                        {"url": f"postgresql://{name}-{sid}:{group['port']}/d", "sid": f"{name}{sid}"}
                        for sid in sorted(group["sids"])
                    ],
                    "tables": group["tables"],
                }
                for name, group in drawn.items()
            ]
        }
    )  # fmt: skip


@settings(max_examples=examples(200))
@given(MAPS, MAPS)
def test_of_any_two_maps_what_was_and_what_differs_make_what_is(first: Any, second: Any) -> None:
    before, after = config(first), config(second)
    old, new = ({one.name: one for one in sources.resolve(each)} for each in (before, after))
    found = difference(before, after)
    added, removed = ({one.name for one in each} for each in (found.added, found.removed))
    changed = {one.source.name: one for one in found.changed}
    assert {one.name for one in found.mapped} == set(new) == (set(old) - removed) | added
    assert not added & set(old)
    assert removed <= set(old)
    for name in set(old) & set(new):
        mine, theirs = ({str(t.table): t for t in one[name].tables} for one in (old, new))
        is_same = mine == theirs and old[name].url == new[name].url
        assert (name in changed) is not is_same
        if name in changed:
            one = changed[name]
            assert one.source == new[name]
            assert len(one.added) == len(theirs.keys() - mine.keys())
            assert len(one.removed) == len(mine.keys() - theirs.keys())
            assert len(one.changed) == sum(mine[t] != theirs[t] for t in mine.keys() & theirs.keys())
            assert of_source(new[name], new[name]) is None
    assert difference(after, after).is_empty
