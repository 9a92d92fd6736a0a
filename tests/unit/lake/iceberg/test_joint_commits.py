"""Whether a REST catalog commits several tables at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import LakeError
from kuvasz.lake.iceberg import joint_commits
from kuvasz.verbs import check
from tests.support.rest_catalog import JOINT, RestServer, rest_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with rest_server(tmp_path / "wh") as made:
        yield made


def config(server: RestServer, folder: Path, consistency: str = "group") -> Config:
    shop = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": {}}}
    lake = {"type": "rest", "uri": server.uri, "warehouse": str(folder / "wh")}
    file = folder / "map.yaml"
    file.write_text(json.dumps({"lake": lake, "databases": [{**shop, "consistency": consistency}]}))
    return load(file, {}).config


def test_one_that_does_not_say_is_asked(server: RestServer, tmp_path: Path) -> None:
    assert joint_commits.prove(config(server, tmp_path)) == "an answer"
    assert server.requests[JOINT] == 1


def test_one_that_lists_it_is_asked_as_well(server: RestServer, tmp_path: Path) -> None:
    server.endpoints = ["POST /v1/{prefix}/transactions/commit"]
    assert joint_commits.prove(config(server, tmp_path)) == "an answer"


def test_one_that_does_not_list_it_is_refused(server: RestServer, tmp_path: Path) -> None:
    server.endpoints = ["GET /v1/{prefix}/namespaces"]
    with pytest.raises(LakeError, match="it does not list POST /v1/"):
        joint_commits.prove(config(server, tmp_path))
    assert server.requests[JOINT] == 0


@pytest.mark.parametrize("code", [401, 403, 404, 405, 406, 501])
def test_one_that_refuses_it_is_refused(server: RestServer, tmp_path: Path, code: int) -> None:
    server.refusal = code
    with pytest.raises(LakeError, match=f"cannot change several tables in one commit: .*{code}") as told:
        joint_commits.prove(config(server, tmp_path))
    assert told.value.hint is not None
    assert "`consistency` at table" in told.value.hint


@pytest.mark.parametrize("code", [400, 409, 500])
def test_one_that_does_not_like_a_commit_of_nothing_has_it(server: RestServer, tmp_path: Path, code: int) -> None:
    server.refusal = code
    assert joint_commits.prove(config(server, tmp_path)) == "an answer"


def test_one_that_has_gone_away(server: RestServer, tmp_path: Path) -> None:
    found = config(server, tmp_path)
    server.close()
    with pytest.raises(LakeError, match="catalog cannot be"):
        joint_commits.prove(found)


def test_check_asks_where_a_group_is_committed_as_one(server: RestServer, tmp_path: Path) -> None:
    server.refusal = 404
    found = {one.check: one for one in check._lake(config(server, tmp_path))}
    assert found["groups"].is_blocking
    assert found["catalog"].ok
    assert "groups" not in {one.check for one in check._lake(config(server, tmp_path, "table"))}
