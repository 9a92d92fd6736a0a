"""What `--config` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError
from kuvasz.state.maps.named import named


@pytest.mark.parametrize(
    ("text", "place", "folder"),
    [
        ("map.yaml", "map.yaml", Path()),
        ("config/map.yaml", "config/map.yaml", Path("config")),
        ("sqlite:map.db", "sqlite:map.db", Path()),
        ("sqlite:/srv/map.db", "sqlite:/srv/map.db", Path("/srv")),
        ("sqlite:///srv/map.db", "sqlite:/srv/map.db", Path("/srv")),
        ("sqlite:////srv/map.db", "sqlite:/srv/map.db", Path("/srv")),
        ("postgresql://repl:${PW}@db/maps?sslmode=require", "postgresql://db:5432/maps", None),
        ("postgres://db:5433/maps", "postgresql://db:5433/maps", None),
    ],
)
def test_a_file_or_a_database_is_named(text: str, place: str, folder: Path | None) -> None:
    found = named(text, {"PW": "a-secret"})
    assert (found.place, found.folder, found.given) == (place, folder, text)
    assert isinstance(found, MapFile) == (":" not in text)


def test_the_password_of_its_url_is_known_as_a_secret() -> None:
    assert named("postgresql://repl:${PW}@db/maps", {"PW": "a/secret"}).secrets >= {"a/secret", "a%2Fsecret"}
    assert "a-secret" in named("postgresql://repl:a-secret@db/maps", {}).secrets


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mysql://root:a-secret@db/maps", "there is no map in mysql"),
        ("sqlite:", "names no file"),
        ("sqlite://map.db", "SQLite has no hosts"),
        ("postgresql://repl:${NONE}@db/maps", "the environment variable NONE is not set"),
        ("postgresql://repl:a-secret@db", "names no database"),
        ("postgresql://repl:a-secret@db/maps?nonsense=1", "nonsense"),
    ],
)
def test_what_names_no_map_is_refused_without_its_password(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        named(text, {})
    assert "a-secret" not in str(caught.value)
    assert caught.value.hint
