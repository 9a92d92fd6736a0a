from __future__ import annotations

from pathlib import Path

from kuvasz.errors import SourceReplaced
from kuvasz.model import SourcePosition
from kuvasz.sync.rules import identity
from tests.support.scene import Scene


def test_only_the_last_past_of_a_source_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    name = scene.source.name
    stored = {
        "shop.items": {
            name: SourcePosition(lsn=9, system_id="8", history=1),
            "us": SourcePosition(lsn=9, system_id="9"),
        },
        "shop.others": {name: SourcePosition(lsn=5, system_id="7", history=2)},
    }
    found = identity.of_source(scene.source, lambda target: stored[target])
    assert found == [("shop.others", stored["shop.others"][name])]
    assert identity.stranger(name, "7", found) is None


def test_another_cluster_is_told() -> None:
    error = identity.stranger(
        "eu", "7", [("shop.items", SourcePosition(lsn=1)), ("shop.t", SourcePosition(lsn=1, system_id="8"))]
    )
    assert isinstance(error, SourceReplaced)
    assert error.message == "source eu: cluster 7 answers, but table shop.t holds rows of cluster 8"
