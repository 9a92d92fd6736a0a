"""The archive itself: a name that says whose it is and when, and files that only their owner can read."""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.secrets import Redactor

_MODE = 0o600

#: What stays as it is in a file's name.
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_GROUP = 40


def name(config: Config, at: datetime.datetime) -> str:
    """Return what an archive is called, without the suffix: by the first group of the map and the time."""
    first, *others = [_PLAIN.sub("_", group.database)[:_LONGEST_GROUP] for group in config.databases] or ["empty"]
    more = f"-and-{len(others)}-more" if others else ""
    return f"kuvasz-support-{first}{more}-{at:%Y%m%dT%H%M%SZ}"


def place(called: str, output: Path | None) -> Path:
    """Return where the archive goes: into the working folder, into the one that is named, or exactly there."""
    if output is None or output.is_dir():
        return (output or Path()) / f"{called}.tar.gz"
    return output


def rendered(files: Mapping[str, Any], redact: Redactor) -> dict[str, bytes]:
    """Return the content of files without secrets: texts as they are, all else as JSON."""
    # A secret may have signs that JSON writes otherwise, so it goes before; what comes of it is looked at once more.
    return {file: redact(_text(redact.clean(content))).encode("utf-8", "replace") for file, content in files.items()}


def write(path: Path, folder: str, files: Mapping[str, bytes], at: datetime.datetime) -> None:
    """Write the archive, which is a new file.

    Args:
        path: Where.
        folder: In which everything lies when it is unpacked.
        files: Name -> content.
        at: The time of the files.

    Raises:
        ConfigError: The file is there already, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for file, content in files.items():
                entry = tarfile.TarInfo(f"{folder}/{file}")
                entry.size, entry.mode, entry.mtime = len(content), _MODE, int(at.timestamp())
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        reason = (
            "it is there already" if isinstance(error, FileExistsError) else (error.strerror or str(error)).lower()
        )
        raise ConfigError(
            f"cannot write {str(path)!r}: {reason}", hint="name another file with --output"
        ) from error  # fmt: skip


def _text(content: Any) -> str:  # noqa: ANN401 (JSON)
    return content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False, default=str)


__all__ = ["name", "place", "rendered", "write"]
