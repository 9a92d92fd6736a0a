from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.numbers.number_file import FILE, NumberFile


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "kinds": {"db": {"names": [[1]]}}}']
)
def test_a_file_that_cannot_be_read_is_told_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StateError, match="cannot be read") as told:
        NumberFile(tmp_path).given("db", [("shop",)])
    assert (
        told.value.hint
        == "restore it, or remove it: the entries of the map then get other numbers in the management API"
    )
    assert (tmp_path / FILE).read_text() == text


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"version": 2, "kinds": {}}))
    with pytest.raises(StateError, match="is of version 2, and this kuvasz knows 1"):
        NumberFile(tmp_path).given("db", [])


def test_no_number_is_given_that_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    numbers = NumberFile(tmp_path / "file")
    with pytest.raises(StateError, match=r"numbers\.json cannot be"):
        numbers.given("db", [("shop",)])


def test_the_file_is_written_when_there_is_something_new_alone(tmp_path: Path) -> None:
    numbers = NumberFile(tmp_path)
    numbers.given("db", [("shop",)])
    (tmp_path / FILE).unlink()
    numbers.given("db", [("shop",)])
    numbers.rename("db", ("nobody",), ("shop",))
    assert not (tmp_path / FILE).exists()


def test_two_who_ask_at_a_time_get_the_same_numbers(tmp_path: Path) -> None:
    numbers, found = NumberFile(tmp_path), []
    names = [(f"db{number}",) for number in range(200)]
    threads = [threading.Thread(target=lambda: found.append(numbers.given("db", names))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert sorted(found[0].values()) == list(range(1, 201))
