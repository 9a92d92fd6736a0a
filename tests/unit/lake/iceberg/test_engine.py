"""Where executors find what they are given, and why the engine ended; starting Spark is tried on Spark."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.iceberg import engine as engine_module
from kuvasz.lake.iceberg.engine import Engine, spool_folder
from tests.support.local_lake import LocalWorld


def with_master(world: LocalWorld, master: str) -> Any:
    spark = world.config.spark.model_copy(update={"master": master})
    return world.config.model_copy(update={"spark": spark})


def test_executors_of_this_machine_read_from_memory_or_the_state_folder(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_master(local_world, "local[2]")
    folder = Path(spool_folder(config))
    assert spool_folder(config) == str(folder), "the same for every process of one state"
    if not folder.is_relative_to(config.pipeline.state_folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "nobody else may read rows there"
        folder.rmdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert Path(spool_folder(config)) == config.pipeline.state_folder / "spool"


def test_what_a_stranger_has_made_in_memory_is_not_used(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError("it is somebody else's")

    monkeypatch.setattr(engine_module.private_folder, "make", refuse)
    config = with_master(local_world, "local[2]")
    assert Path(spool_folder(config)) == config.pipeline.state_folder / "spool"


def test_executors_of_a_cluster_read_from_the_warehouse(local_world: LocalWorld) -> None:
    config = with_master(local_world, "spark://there:7077")
    assert spool_folder(config) == f"{config.lake.warehouse_location}/_kuvasz_spool"


def test_a_spool_that_cannot_be_used_is_told(local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = local_world.config.pipeline.state_folder / "taken"
    folder.write_text("a file in the way")
    monkeypatch.setattr(engine_module, "spool_folder", lambda _: str(folder))
    with pytest.raises(LakeError) as caught:
        engine_module._spool(local_world.config)
    assert caught.value.message.startswith(f"the spool {folder} cannot be used: ")
    assert caught.value.hint == "remove the folder, or choose another `pipeline.state`"


@dataclasses.dataclass
class Process:
    code: int | None

    def poll(self) -> int | None:
        return self.code


@pytest.mark.parametrize(
    ("code", "told"),
    [(None, None), (3, "spark's jvm ran out of memory and ended with 3"), (137, "spark's jvm ended with 137")],
)
def test_a_jvm_that_ended_is_told_with_its_reason(
    local_world: LocalWorld, code: int | None, told: str | None
) -> None:
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=Process(code)))
    session: Any = SimpleNamespace(sparkContext=context)
    error = Engine(local_world.config, session).why_dead()
    assert (None if error is None else error.message) == told


def test_a_jvm_that_someone_else_started_is_never_dead(local_world: LocalWorld) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace()))
    assert Engine(local_world.config, session).why_dead() is None
