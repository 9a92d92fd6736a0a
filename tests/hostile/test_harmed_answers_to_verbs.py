"""One message of a server is harmed, of those that a verb asks for: it says so of that source, all of two others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo
from kuvasz.verbs import check, plan
from tests.support.lake import group
from tests.support.message_proxy import WAYS, MessageProxy, message_proxy
from tests.support.postgres import Database, create_database, drop_database
from tests.support.proxy import url_through

pytestmark = pytest.mark.postgres

GOOD = ("one", "two")


@pytest.fixture
def sources(postgres18: EmbeddedPostgres, postgres16: EmbeddedPostgres) -> Iterator[dict[str | None, Database]]:
    made: dict[str | None, Database] = {sid: create_database(postgres18) for sid in GOOD}
    made["bad"] = create_database(postgres16)
    for database in made.values():
        database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    yield made
    for database in made.values():
        drop_database(database)


def config(folder: Path, sources: dict[str | None, Database], between: MessageProxy) -> Config:
    (found,) = group(sources, {"items": None})
    url = url_through(sources["bad"], between.port, "sslmode=disable&connect_timeout=2")
    found["urls"][-1] = {"url": url, "sid": "bad"}
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state")},
        "server": {"address": None},
        "databases": [found],
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    return load(folder / "map.yaml", {}).config


def planned(asked: Config) -> None:
    found = {one.source: one for one in plan.plans(asked)}
    assert [found[f"shop_{sid}"].error for sid in GOOD] == [None, None]
    assert [[table.action for table in found[f"shop_{sid}"].tables] for sid in GOOD] == [["copy"], ["copy"]]
    assert found["shop_bad"].error is not None or found["shop_bad"].tables


def checked(asked: Config) -> None:
    found = check.findings(asked)
    for sid in GOOD:
        good = [one for one in found if one.source == f"kuvasz_shop_{sid}"]
        assert {one.check for one in good} >= {"reachable", "wal_level", "key"}
        assert not [one for one in good if one.is_blocking]
    assert [one for one in found if one.source == "kuvasz_shop_bad"]


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("verb", [pytest.param(planned, marks=pytest.mark.slow), checked])
def test_the_others_are_told_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sources: dict[str | None, Database],
    verb: Callable[[Config], None],
    step: int,
) -> None:
    """With each step another way, and with a step of one each way."""
    monkeypatch.setattr(conninfo, "ANSWER_S", 1.0)
    port = sources["bad"].server.port
    with message_proxy(port) as between:
        verb(config(tmp_path, sources, between))
        count = len(between.kinds)
    for number in range(1, count + 1, step):
        for way in WAYS if step == 1 else [WAYS[number // step % len(WAYS)]]:
            with message_proxy(port, way, number) as between:
                verb(config(tmp_path, sources, between))
                assert between.harmed, (way, number)
