"""Orders that a process which reads cannot carry out. What it reads is tried by acceptance tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.errors import SlotLost
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder
from kuvasz.verbs.cluster.reading import SourcesRead


@pytest.fixture
def read(tmp_path: Path) -> SourcesRead:
    (tmp_path / "password").write_text("before")
    url = f"postgresql://kuvasz:${{file:{tmp_path}/password}}@db/eu"
    groups = [{"database": "eu", "urls": [{"url": url}], "tables": {"items": None}}]
    cluster = {"coordinator": "postgresql:///nowhere", "log": str(tmp_path / "log"), "role": "read"}
    (file := tmp_path / "map.yaml").write_text(json.dumps({"databases": groups, "cluster": cluster}))
    return SourcesRead(load(file, {}))


def test_what_it_cannot_read_as_ordered_is_answered_and_not_begun(read: SourcesRead) -> None:
    order = StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1)
    later = StreamOrder.of_json({**order.as_json(), "is_binary": True})
    given = {name: GivenOrder(past=5, order=one, known=KnownPast()) for name, one in (("eu", later), ("us", order))}
    asyncio.run(read._begin(given))
    told = {name: str(answer.error) for name, answer in read._answers().items()}
    assert "asks for is_binary, which this version does not know" in told["eu"]
    assert "has another map, without it" in told["us"]
    assert {answer.past for answer in read._answers().values()} == {5}
    assert not any(answer.is_receiving for answer in read._answers().values())


def test_what_a_standby_of_the_coordinator_has_not_heard_is_said_again(
    read: SourcesRead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took over a moment behind: whoever applies would believe that sources are read which are not."""
    index = MemoryIndex()
    monkeypatch.setattr(read, "_index", index)
    names, said = ("eu", "us", "asia"), dict[str, StreamAnswer]()
    for name in names:
        index.begin_anew(name, 100)
        index.give(name, StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1), KnownPast())
        said[name] = StreamAnswer(
            is_receiving=False, error=SlotLost("gone"), standing=SourceRecord(), past=index.orders()[name].past
        )

    def looks(count: int) -> None:
        for _ in range(count):
            read._looks += 1
            read._answer(said)

    looks(1)
    assert set(index.answers()) == set(names)
    index._answers.clear()
    looks(3)
    assert index.answers() == {}, "not each time"
    looks(12)
    assert set(index.answers()) == set(names), "one after another"


def test_a_source_whose_password_cannot_be_read_is_not_silent(
    read: SourcesRead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever applies may read it on its own machine, and sees that somebody holds the source."""
    index = MemoryIndex()
    monkeypatch.setattr(read, "_index", index)
    monkeypatch.setattr(read.log, "index", index)
    index.begin_anew("eu", 100)
    index.give("eu", StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1), KnownPast())
    index.hold(index.shared().pasts)

    (tmp_path / "password").unlink()  # it is being rotated, or was forgotten on this machine

    async def look() -> None:
        await read._begin(index.shared().orders)
        async with asyncio.timeout(20):
            while not any(answer.error for answer in index.answers().values()):
                read._answer(read._answers())
                await asyncio.sleep(0.01)
        assert list(read._readings) == ["eu"]
        for reading in read._readings.values():
            reading._staging._wake.stop()
            await reading.end()

    asyncio.run(look())
    answer = index.answers()["eu"]
    assert "password" in str(answer.error)
    assert not answer.is_receiving
