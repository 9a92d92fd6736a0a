from __future__ import annotations

import pytest

from kuvasz import failpoints
from kuvasz.errors import LakeError


def armed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(failpoints, "_armed", failpoints._parse(text))


def test_an_unarmed_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    armed(monkeypatch, "")
    failpoints.hit("before_commit")


def test_a_point_fails_once_as_its_place_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    armed(monkeypatch, "before_commit:error:2")
    failpoints.hit("before_commit", LakeError)
    failpoints.hit("after_commit", LakeError)
    with pytest.raises(LakeError, match=r"^failpoint before_commit$"):
        failpoints.hit("before_commit", LakeError)
    failpoints.hit("before_commit", LakeError)
    told = '{"event": "failpoint", "point": "before_commit", "action": "error"}\n'
    assert capsys.readouterr().err == told, "once, at the second pass"


def test_a_point_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("kuvasz.failpoints.time.sleep", slept.append)
    armed(monkeypatch, "after_commit:sleep=2.5, before_commit:sleep=1")
    failpoints.hit("after_commit")
    assert slept == [2.5]


@pytest.mark.parametrize(
    "text", ["nowhere:kill", "before_commit", "before_commit:stop", "before_commit:sleep", "before_commit:kill=1"]
)
def test_what_is_no_point_or_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^KUVASZ_FAILPOINTS: .* is not name:action\[:count\] of a known point"):
        failpoints._parse(text)
