from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, SourceError, SourceRefused
from kuvasz.source import conninfo, publication, slots
from kuvasz.verbs import cleanup
from kuvasz.verbs.cleanup import Step


class Servers:
    """What the sources have, and what went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots = {"kuvasz_shop_eu", "kuvasz_shop_us"}
        self.publications = {"kuvasz_shop_eu", "kuvasz_shop_us"}
        self.busy: set[str] = set()
        self.down: set[str] = set()
        self.order: list[str] = []
        monkeypatch.setattr(conninfo, "connect", self.connect)
        monkeypatch.setattr(slots, "drop", self.drop_slot)
        monkeypatch.setattr(publication, "drop", self.drop_publication)
        monkeypatch.setattr(publication, "exists", lambda _, name: name in self.publications)

    def connect(self, url: str) -> Any:
        if url in self.down:
            raise SourceError("it is down", hint="start it")
        return SimpleNamespace(close=lambda: None)

    def drop_slot(self, _: object, name: str) -> bool:
        if name in self.busy:
            raise SourceRefused(f"slot {name} is in use", hint="stop kuvasz first")
        return self._gone(self.slots, "slot", name)

    def drop_publication(self, _: object, name: str) -> bool:
        return self._gone(self.publications, "publication", name)

    def _gone(self, among: set[str], what: str, name: str) -> bool:
        was_there = name in among
        among.discard(name)
        self.order.append(f"{what} {name}")
        return was_there


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    return Servers(monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql://rep:geheim@{sid}/shop", "sid": sid} for sid in ("eu", "us")]
    databases = [{"database": "shop", "urls": urls, "tables": {"items": None}}]
    document = {"pipeline": {"state": str(tmp_path / "state")}, "lake": {"namespace": "shop"}, "databases": databases}
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


def outcomes(steps: list[Step]) -> list[tuple[str, str, str, str]]:
    return [(step.source, step.what, step.name, step.outcome) for step in steps]


def test_nothing_is_done_before_a_person_is_sure(servers: Servers, config: Config) -> None:
    with pytest.raises(ConfigError) as told:
        cleanup.run(config, is_sure=False)
    assert told.value.message.startswith("cleanup drops slot and publication of every source: kuvasz_shop_eu at ")
    assert "geheim" not in str(told.value)
    assert len(servers.slots) == 2


def test_slot_and_publication_of_every_source_go_the_slot_first(servers: Servers, config: Config) -> None:
    servers.slots.remove("kuvasz_shop_us")
    steps = cleanup.run(config, is_sure=True)
    assert outcomes(steps) == [
        ("shop_eu", "slot", "kuvasz_shop_eu", "dropped"),
        ("shop_eu", "publication", "kuvasz_shop_eu", "dropped"),
        ("shop_us", "slot", "kuvasz_shop_us", "was not there"),
        ("shop_us", "publication", "kuvasz_shop_us", "dropped"),
    ]
    eu = [what for what in servers.order if what.endswith("_eu")]
    assert eu == ["slot kuvasz_shop_eu", "publication kuvasz_shop_eu"]
    assert cleanup.exit_code(steps) == 0


def test_the_publication_for_inserts_goes_as_well(servers: Servers, config: Config) -> None:
    more = cleanup.inserts.object_name("kuvasz_shop_eu")
    servers.publications.add(more)
    steps = cleanup.run(config, is_sure=True)
    assert ("shop_eu", "publication", more, "dropped") in outcomes(steps)
    assert servers.publications == set()


def test_a_slot_in_use_stays_and_so_does_its_publication(servers: Servers, config: Config) -> None:
    servers.busy.add("kuvasz_shop_eu")
    steps = cleanup.run(config, is_sure=True)
    assert outcomes(steps)[0] == ("shop_eu", "slot", "kuvasz_shop_eu", "left")
    assert servers.publications == {"kuvasz_shop_eu"}
    assert cleanup.exit_code(steps) == 1


def test_a_source_that_is_down_keeps_no_other_from_being_cleaned(servers: Servers, config: Config) -> None:
    servers.down.add("postgresql://rep:geheim@eu/shop")
    steps = cleanup.run(config, is_sure=True)
    assert [step.outcome for step in steps] == ["left", "dropped", "dropped"]
    assert (steps[0].error, steps[0].hint) == ("it is down", "start it")


def test_a_person_sees_what_was_done_and_what_is_left(config: Config) -> None:
    steps = [
        Step(source="shop_eu", what="slot", name="kuvasz_shop_eu", outcome="left", error="in use", hint="stop it"),
        Step(source="shop_us", what="slot", name="kuvasz_shop_us", outcome="dropped"),
    ]
    left = cleanup.left(config)
    assert cleanup.render(steps, left) == (
        "shop_eu: slot kuvasz_shop_eu: left\n  in use\n  hint: stop it\nshop_us: slot kuvasz_shop_us: dropped\n"
        "left as they are:\n  the lake's tables, with the positions in them: shop.items\n"
        f"  the state folder: {config.pipeline.state_folder}"
    )
    found = cleanup.as_json(steps, left)
    assert (found["left"], found["steps"][1]["outcome"]) == (left, "dropped")


def test_the_tables_about_the_lake_stay(config: Config) -> None:
    lake = config.lake.model_copy(update={"about": "_kuvasz"})
    assert "the tables about the lake: those of the namespace _kuvasz" in cleanup.left(
        config.model_copy(update={"lake": lake})
    )


def test_a_slot_that_is_read_asks_for_a_second_run(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(*_: object) -> bool:
        told = 'drop slot "s": ERROR: replication slot "s" is active for PID 7'
        raise SourceError(told, hint="the other session must end first; it is tried again")

    monkeypatch.setattr(conninfo, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(slots, "drop", drop)
    hints = {step.hint for step in cleanup.run(config, is_sure=True)}
    assert hints == {"stop kuvasz, or who else reads the slot, and run this again"}


def test_what_a_group_of_a_log_hears_is_not_its_own(config: Config) -> None:
    grouped = config.model_copy(update={"cluster": config.cluster.model_copy(update={"group": "blue"})})
    with pytest.raises(ConfigError, match="slots and publications are not those of group blue") as caught:
        cleanup.run(grouped, is_sure=True)
    assert "kuvasz cluster retire blue" in str(caught.value)
