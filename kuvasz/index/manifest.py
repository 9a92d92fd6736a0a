"""The manifest: which run files make up the index, and of which state of the table.

One file, replaced by rename after everything it names has reached stable storage. Its first line is the CRC-32 of
the rest, which is JSON. Without a readable manifest there is no index.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NAME = "manifest"
_FORMAT = 3  #: 1: keys hashed with a seed of which the lake has all; 2: records of 24 bytes


class DamagedManifestError(Exception):
    """The manifest is not what was written."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One run file."""

    name: str
    rows: int
    extents: int
    checksum: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint."""

    tag: dict[str, Any]
    runs: tuple[RunEntry, ...] = ()  #: oldest first
    dropped: tuple[int, ...] = ()  #: files whose records count as absent


def read(folder: Path) -> Manifest | None:
    """Return the manifest of an index folder, None if there is none.

    Raises:
        DamagedManifestError: It cannot be made sense of.
    """
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    return parse(data)


def parse(data: bytes) -> Manifest:
    """Return a manifest of its bytes, as `rendered` made them.

    Raises:
        DamagedManifestError: It cannot be made sense of.
    """
    head, _, body = data.partition(b"\n")
    if head != _crc(body):
        raise DamagedManifestError("the checksum of the manifest is another")
    try:
        value = json.loads(body)
        if value["format"] != _FORMAT:
            raise DamagedManifestError(f"the manifest has format {value['format']}, not {_FORMAT}")
        runs = tuple(RunEntry(**entry) for entry in value["runs"])
        return Manifest(tag=value["tag"], runs=runs, dropped=tuple(value["dropped"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedManifestError(f"the manifest cannot be read: {error!r}") from error


def rendered(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    value = {"format": _FORMAT, **dataclasses.asdict(manifest)}
    body = json.dumps(value, separators=(",", ":")).encode()
    return _crc(body) + b"\n" + body


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, durably. What it names must be durable before."""
    fresh = folder / f"{NAME}.new"
    with fresh.open("wb") as file:
        file.write(rendered(manifest))
        file.flush()
        os.fsync(file.fileno())
    # The run files' names must be in the folder before the manifest that counts on them.
    sync_folder(folder)
    fresh.replace(folder / NAME)
    sync_folder(folder)


def remove(folder: Path) -> None:
    """Take the manifest away, durably: from now on there is no index."""
    (folder / NAME).unlink(missing_ok=True)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to stable storage."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _crc(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode()
