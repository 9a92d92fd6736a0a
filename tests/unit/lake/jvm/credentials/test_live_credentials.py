"""What files have now is put into an open catalog once, and what nobody is let in by is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import JDBC_CREDENTIALS
from kuvasz.config.secrets import LiveTexts, SecretFile, SecretText
from kuvasz.errors import LakeError
from kuvasz.lake.files.store_access import StoreAccess
from kuvasz.lake.jvm.credentials import live_credentials
from kuvasz.lake.jvm.credentials.live_credentials import LiveCredentials

KEY, PASSWORD = "s3.access-key-id", "jdbc.password"


class HashMap(dict[str, str]):
    """Java's, as far as it is asked."""

    put = dict.__setitem__

    def remove(self, name: str) -> None:
        self.pop(name, None)


class Field:
    """A private field of a Java object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def setAccessible(self, _: bool) -> None:  # noqa: N802 (Java's)
        return

    def get(self, of: Any) -> Any:
        return getattr(of, self._name)

    def set(self, of: Any, value: Any) -> None:
        setattr(of, self._name, value)


class Java:
    """A Java object."""

    def getClass(self) -> Any:  # noqa: N802 (Java's)
        return SimpleNamespace(getDeclaredField=Field)


class Io(Java):
    """The FileIO of a catalog."""

    def __init__(self) -> None:
        self.known: Mapping[str, str] = {KEY: "old", "s3.endpoint": "http://s"}
        self.closed: list[str] = []
        self.clientByPrefix: Any = None
        self.used("first")

    def used(self, name: str) -> None:
        """Have made clients."""
        self.clientByPrefix = {"ROOT": SimpleNamespace(close=lambda: self.closed.append(name))}

    def properties(self) -> Mapping[str, str]:
        return self.known

    def initialize(self, properties: Mapping[str, str]) -> None:
        self.known = dict(properties)


JVM = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(HashMap=HashMap)))


class World:
    """An open catalog, its login, and files of the map."""

    names = JDBC_CREDENTIALS

    def __init__(self, folder: Path) -> None:
        self.io, self.tried, self.is_refusing, self.kept = Io(), list[str](), False, 0
        self.files = {KEY: folder / "key", PASSWORD: folder / "password"}
        for file in self.files.values():
            file.write_text("old")
        live = {name: SecretText(SecretFile(str(file))) for name, file in self.files.items()}
        catalog = Java()
        catalog.io = self.io  # type: ignore[attr-defined]
        fixed = {KEY: "old", PASSWORD: "old", "s3.endpoint": "http://s"}
        self.credentials = LiveCredentials(JVM, catalog, self, LiveTexts(fixed, live))

    def connect(self, properties: Mapping[str, str]) -> None:
        self.tried.append(properties[PASSWORD])
        if self.is_refusing:
            raise LakeError("catalog: password authentication failed", hint="none")

    def keep(self) -> None:
        self.kept += 1

    def write(self, **texts: str) -> None:
        for file in self.files.values():
            if (text := texts.get(file.name)) is not None:
                file.write_text(text)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(live_credentials, "_LOOK_S", 0.0)
    monkeypatch.setattr(live_credentials, "_KEPT_S", 0.0)
    return World(tmp_path)


def test_the_store_is_reached_with_what_the_files_have(world: World) -> None:
    table = object()
    assert world.credentials.current(table) is table
    assert world.io.clientByPrefix is not None, "nothing is other"
    world.write(key="second")
    assert world.credentials.current(table) is table
    assert world.io.known == {KEY: "second", "s3.endpoint": "http://s"}
    assert (world.io.clientByPrefix, world.io.closed) == (None, []), "somebody may be reading"
    world.io.used("second")
    world.write(key="third")
    assert world.credentials.reading(table) is table
    assert (world.io.known[KEY], world.io.closed, world.tried) == ("third", ["first"], [])


def test_what_was_exchanged_while_spark_started_is_seen(tmp_path: Path, world: World) -> None:
    world.write(key="second")
    opened = LiveTexts({KEY: "old"}, {KEY: SecretText(SecretFile(str(tmp_path / "key")))})
    assert opened[KEY] == "second"
    catalog = Java()
    catalog.io = world.io  # type: ignore[attr-defined]
    LiveCredentials(JVM, catalog, world, opened).settle()
    assert world.io.known[KEY] == "second"


def test_clients_are_left_to_whoever_may_use_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_credentials, "_KEPT_S", 3600.0)
    for key in ("second", "third"):
        world.write(key=key)
        world.credentials.settle()
        world.io.used(key)
    assert world.io.closed == []


def test_a_password_that_the_catalog_does_not_take_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kuvasz")
    monkeypatch.setattr(live_credentials, "_PAUSE_S", 0.0)
    world.is_refusing = True
    world.write(password="new")
    world.credentials.settle()
    world.credentials.settle()
    world.is_refusing = False
    world.credentials.settle()
    world.credentials.settle()
    assert world.tried == ["new", "new", "new"]
    told = [getattr(record, "event", "") for record in caplog.records]
    assert told == ["credentials_refused", "credentials_refused", "credentials_renewed"]


def test_a_map_that_is_read_again_says_where_the_password_is(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    world.credentials.renew(LiveTexts({PASSWORD: ""}, {PASSWORD: SecretText(SecretFile(str(tmp_path / "other")))}))
    world.write(password="nobody asks for it")
    world.credentials.settle()
    assert world.tried == ["other"]
    (tmp_path / "other").write_text("new")
    world.credentials.settle()
    assert world.tried == ["other", "new"]
    world.is_refusing = True
    with pytest.raises(LakeError, match="authentication failed"):
        world.credentials.renew({PASSWORD: "unknown"})
    world.is_refusing = False
    (tmp_path / "other").write_text("newer")
    world.credentials.settle()
    assert world.tried[-1] == "newer", "those before go on where nobody is let in"


def test_looks_are_apart_unless_something_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_credentials, "_LOOK_S", 3600.0)
    world.credentials.settle()
    world.write(key="second")
    world.credentials.settle()
    assert world.io.known[KEY] == "old"
    monkeypatch.setattr(live_credentials, "_LOOK_S", 0.0)
    with pytest.raises(LakeError), world.credentials.doubting():
        raise LakeError("403", hint="none")
    world.credentials.settle()
    assert world.io.known[KEY] == "second"


def test_what_is_in_no_file_is_not_looked_at() -> None:
    fail: Callable[..., Any] = lambda *_: pytest.fail("nobody asked")  # noqa: E731
    login: Any = SimpleNamespace(names=JDBC_CREDENTIALS, connect=fail, keep=lambda: None)
    LiveCredentials(object(), object(), login, {KEY: "old"}).settle()


def test_a_login_is_kept_while_there_is_work_and_nothing_else_is_to_do(world: World) -> None:
    world.credentials.settle()
    world.write(password="new")
    world.credentials.settle()
    assert (world.kept, world.tried) == (1, ["new"])


def test_a_catalog_that_lends_is_asked_with_what_the_files_have_and_its_store_is_each_tables(world: World) -> None:
    texts = world.credentials._requests
    assert isinstance(texts, LiveTexts)
    catalog = Java()
    catalog.io = world.io  # type: ignore[attr-defined]
    lent = LiveCredentials(JVM, catalog, world, StoreAccess(texts.fixed, texts))
    world.write(key="second", password="new")
    lent.settle()
    assert (world.io.known[KEY], world.tried) == ("old", ["new"])
