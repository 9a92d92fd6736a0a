"""Whether nothing can be committed any more in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.errors import LakeError
from kuvasz.sync.context import shared
from tests.support.scene import Scene

DEAD = LakeError("spark's jvm ended with 137")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(shared, "_LOOK_S", 0.0)
    return Scene(tmp_path)


def is_dead(scene: Scene, monkeypatch: pytest.MonkeyPatch, why_dead: Callable[[], LakeError | None]) -> bool:
    monkeypatch.setattr(scene.lake, "why_dead", why_dead)
    return asyncio.run(scene.shared.is_lake_dead())


def test_a_jvm_that_dies_a_moment_after_it_refused_is_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count(1)
    assert is_dead(scene, monkeypatch, lambda: DEAD if next(looks) > 5 else None)


def test_one_that_lives_on_is_not_waited_for_for_long(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_DEATH_S", 0.02)
    assert not is_dead(scene, monkeypatch, lambda: None)
