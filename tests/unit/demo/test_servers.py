"""The demo's servers: begun anew, and gone whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.demo import servers, shop


class Server:
    """A server that notes what is done to it."""

    done: list[str]

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder, self.port = folder, port

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "postmaster.pid").touch()
        Server.done.append(f"start {self.folder.name}")

    def stop(self, how: str) -> None:
        Server.done.append(f"stop {self.folder.name}")
        raise RuntimeError("nobody runs")

    def remove(self) -> None:
        Server.done.append(f"remove {self.folder.name}")
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        if self.folder.exists():
            self.folder.rmdir()

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@{self.folder.name}/{database}"


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    Server.done = []
    monkeypatch.setattr(servers, "EmbeddedPostgres", Server)
    monkeypatch.setattr(shop, "create", lambda url, sid: found.append(sid))
    for sid in servers.SIDS:
        monkeypatch.delenv(f"{sid.upper()}_PORT", raising=False)
    return found


def test_each_is_begun_without_data_of_before_and_seeded(tmp_path: Path, seeded: list[str]) -> None:
    left = tmp_path / "demo" / "us"
    left.mkdir(parents=True)
    (left / "postmaster.pid").touch()
    with servers.sources(tmp_path / "demo") as found:
        assert set(found) == set(seeded) == set(servers.SIDS)
        done = Server.done
        assert done.index("stop us") < done.index("remove us") < done.index("start us")
        assert "stop eu" not in done, "nothing was left of it"
    assert not (tmp_path / "demo").exists()


def test_they_are_gone_when_one_cannot_be_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str, sid: str) -> None:
        if sid == "us":
            raise OSError("no room")

    monkeypatch.setattr(shop, "create", fail)
    with pytest.raises(OSError, match="no room"), servers.sources(tmp_path / "demo"):
        pass
    assert not (tmp_path / "demo").exists()


def test_what_else_lies_in_the_folder_stays(tmp_path: Path) -> None:
    with servers.sources(tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_port_may_be_chosen_and_the_map_is_told_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EU_PORT", "5433")
    with servers.sources(tmp_path / "demo") as found:
        ports: dict[str, Any] = {sid: server.port for sid, server in found.items()}
        assert ports == {"eu": 5433, "us": None, "ap": None}
        assert servers.urls(found)["US_URL"] == f"postgresql://{shop.ROLE}@us/{shop.DATABASE}"
