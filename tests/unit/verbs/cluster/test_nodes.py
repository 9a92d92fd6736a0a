"""The list of processes of a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config import load
from kuvasz.errors import ConfigError
from kuvasz.state.ports import ClusterNode
from kuvasz.verbs.cluster import nodes

HOLDER = ClusterNode(
    name="one-1", host="one", pid=5, version="0.1.0", map_digest="a", since=0.0, silent_s=1.2, is_holder=True
)
STANDBY = ClusterNode(
    name="two-2", host="two", pid=6, version="0.1.0", map_digest="b", since=60.0, silent_s=0.4, is_holder=False
)


def test_they_are_listed_with_what_they_do() -> None:
    *_, first, second = nodes.render([HOLDER, STANDBY]).splitlines()
    assert "one-1" in first
    assert "replicates" in first
    assert "1970-01-01T00:00:00+00:00" in first
    assert "stands by" in second
    assert "b (another one)" in second
    assert "another" not in first


READER, APPLIER = (
    dataclasses.replace(HOLDER, name=role, role=role, map_digest=digest)
    for role, digest in (("read", "old"), ("apply", "new"))
)


def test_two_may_share_the_work() -> None:
    *_, first, second = nodes.render([READER, APPLIER]).splitlines()
    assert "reads" in first
    assert "old (another one)" in first, "tables are those of who applies"
    assert "applies" in second
    assert [node["role"] for node in nodes.as_json([READER, APPLIER])["nodes"]] == ["read", "apply"]
    found = [nodes.exit_code(some) for some in ([READER, APPLIER], [READER], [APPLIER, STANDBY])]
    assert found == [0, 1, 1]
    assert [nodes.exit_code(some, is_group=True) for some in ([APPLIER], [STANDBY])] == [0, 1], "none of it reads"


def test_those_that_share_targets_say_how_many_they_have() -> None:
    one = dataclasses.replace(APPLIER, name="one", targets=3)
    two = dataclasses.replace(APPLIER, name="two", targets=0, is_draining=True)
    *_, first, second, _ = nodes.render([one, two, READER]).splitlines()
    assert "3 targets" in first
    assert "0 targets, gives them away" in second
    found = nodes.as_json([one, two, READER])["nodes"]
    assert [(node["targets"], node["drains"]) for node in found] == [(3, False), (0, True), (None, False)]


def test_those_that_share_sources_say_how_many_they_have() -> None:
    one = dataclasses.replace(READER, name="one", sources=3)
    two = dataclasses.replace(READER, name="two", sources=1, is_draining=True)
    head, _, *rows = nodes.render([one, two, APPLIER]).splitlines()
    assert "share" in head
    assert "3 sources" in rows[0]
    assert "1 source, gives them away" in rows[1]
    assert "share" not in nodes.render([HOLDER, STANDBY])
    assert [(node["sources"], node["drains"]) for node in nodes.as_json([one, two, APPLIER])["nodes"]] == [
        (3, False), (1, True), (None, False),
    ]  # fmt: skip


def test_json_has_what_the_table_has() -> None:
    first, second = nodes.as_json([HOLDER, STANDBY])["nodes"]
    assert (first["name"], first["replicates"], first["silent_s"]) == ("one-1", True, 1.2)
    assert (second["map"], second["replicates"]) == ("b", False)


def test_it_fails_where_nobody_replicates() -> None:
    assert (nodes.exit_code([HOLDER, STANDBY]), nodes.exit_code([STANDBY]), nodes.exit_code([])) == (0, 1, 1)


def test_a_map_without_a_coordinator_has_no_nodes(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("- database: shop\n  urls: [{url: postgresql://h/d}]\n  tables: {t: }\n")
    with pytest.raises(ConfigError, match="there is one process alone"):
        nodes.run(load.load(file).config)
