"""Servers that sort, print money and, where their programs are translated, speak as in Germany."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.postgres import Server, new_data_folder

_GERMAN = {"lc_messages": "de_DE.UTF-8"}
_DEBIAN = Path("/usr/lib/postgresql")
_TRANSLATIONS = Path("/usr/share/locale/de/LC_MESSAGES")


class GermanPostgres(Server):
    """A server whose databases are German."""

    def _run(self, program: str, *arguments: str) -> None:
        given = [one for one in arguments if not one.startswith("--locale")]
        super()._run(program, *given, *(["--locale=de_DE.UTF-8"] if program == "initdb" else []))


class DebianPostgres(GermanPostgres):
    """One of the distribution's packages, which come with translations."""

    def command(self, name: str) -> Path:
        return _DEBIAN / str(self.version) / "bin" / name


@pytest.fixture
def german_locale(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The locale, which is made where the machine has none."""
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales/de_DE").exists():
        pytest.skip("no locale can be made here")
    locales = Path(tempfile.mkdtemp(prefix="kuvasz-locales-"))
    locales.chmod(0o755)
    for name in ("de_DE", "en_GB"):
        subprocess.run(
            ["localedef", "-i", name, "-f", "UTF-8", str(locales / f"{name}.UTF-8")], check=True, capture_output=True
        )
    monkeypatch.setenv("LOCPATH", str(locales))
    yield
    shutil.rmtree(locales)


@pytest.fixture
def german(german_locale: None) -> Iterator[EmbeddedPostgres]:
    """A server with such databases."""
    with GermanPostgres(new_data_folder(), settings=_GERMAN) as server:
        yield server


@pytest.fixture
def translated(german_locale: None) -> Iterator[EmbeddedPostgres]:
    """One whose messages are German, where Debian's is installed with them; it gives up slots that lag."""
    versions = [int(file.stem.split("-")[1]) for file in _TRANSLATIONS.glob("postgres-*.mo")]
    found = [version for version in versions if (_DEBIAN / str(version) / "bin" / "postgres").exists()]
    if not found:
        pytest.skip("no server here has its messages in German")
    settings = _GERMAN | {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with DebianPostgres(new_data_folder(), version=max(found), settings=settings) as server:
        yield server
