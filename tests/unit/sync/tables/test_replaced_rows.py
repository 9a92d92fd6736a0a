"""Who has a position for rows that a copy is about to replace."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, StateError
from kuvasz.model import SourcePosition, TableName
from kuvasz.ports import Feed
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.targets import target_of
from kuvasz.sync.tables.replaced_rows import ReplacedRows
from tests.support.changes import ITEMS
from tests.support.scene import Scene

#: name in the lake -> the sid of its rows
THERE = {
    "crm/16385@a": "a", "crm/16386@b": "b", "shop/16500@a": "a", "shop_eu/7": "a", "store_a": "a", "store_b": "b",
}  # fmt: skip


def positions(tmp_path: Path, spec: SourceTableSpec, sid: str | None) -> tuple[Scene, list[str]]:
    """Return who has one when a table is about to be copied; all of these had."""
    scene = Scene(tmp_path)
    source = dataclasses.replace(scene.source, sid=sid)
    scene.context = SourceContext.of(source, scene.shared)
    scene.shared.state.feeds.keep({}, {"store_a": "a", "store_b": "b", "shop": sid})
    for name, its_sid in THERE.items():
        feed = Feed(target=spec.identifier, source=name, sid=its_sid, table=spec.table)
        scene.lake.prepare(target_of(spec), feed, ITEMS)
        scene.lake.copy(feed, ITEMS, [], SourcePosition(lsn=1000), lambda *_: None)

    async def body() -> None:
        scene.context.lifetime.begin()
        await asyncio.to_thread(ReplacedRows(scene.context).let_go, spec)

    asyncio.run(body())
    return scene, sorted(scene.lake.positions(spec.identifier))


def tenant(tmp_path: Path, sid: str) -> SourceTableSpec:
    spec = dataclasses.replace(Scene(tmp_path).items, has_sid=True, schemas="tenant_(.+)")
    return spec.of_member(TableName(schema=f"tenant_{sid}", name="items"), 17000)


def test_a_tenant_takes_the_place_of_every_tenant_and_source_of_its_sid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Members that are told apart by their files have none of its rows."""
    spec = tenant(tmp_path, "a")
    scene, left = positions(tmp_path, spec, None)
    assert left == ["crm/16386@b", "shop_eu/7", "store_b"]
    assert scene.settled == [spec.identifier]
    assert scene.lake.notes.gap(spec.identifier, "store_a") is not None, "it is compared when it comes back"
    assert scene.lake.notes.gap(spec.identifier, "crm/16385@a") is None, "it is copied"
    assert caplog.text.count("another table has the sid of a source's rows") == 3
    assert "rows of sid 'a' are those of shop/17000@a from now on" in str([vars(one) for one in caplog.records])


def test_a_source_takes_the_place_of_tenants_alone(tmp_path: Path) -> None:
    """Of two sources the map says which one has a sid."""
    scene, left = positions(tmp_path, dataclasses.replace(Scene(tmp_path).items, has_sid=True), "b")
    assert left == [name for name in sorted(THERE) if name != "crm/16386@b"]
    assert scene.settled == ["shop.items"]


@pytest.mark.parametrize("sid", [None, "nobody"])
def test_where_nobody_has_such_rows_nothing_is_done(tmp_path: Path, sid: str | None) -> None:
    scene, left = positions(tmp_path, dataclasses.replace(Scene(tmp_path).items, has_sid=sid is not None), sid)
    assert (left, scene.settled) == (sorted(THERE), [])


def test_without_the_sids_of_earlier_sources_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sids(_: object) -> None:
        raise StateError("the file cannot be read")

    monkeypatch.setattr("kuvasz.state.memory.MemoryFeeds.sids", sids)
    with pytest.raises(SourceError, match="the file cannot be read"):
        positions(tmp_path, tenant(tmp_path, "a"), None)
