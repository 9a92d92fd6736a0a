from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from kuvasz.index import manifest
from kuvasz.index.manifest import DamagedManifestError, Manifest, RunEntry

FOUND = Manifest(
    tag={"snapshot": 7}, runs=(RunEntry(name="0a.run", rows=3, extents=2, checksum="ff"),), dropped=(4, 9)
)


def test_what_was_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    manifest.write(tmp_path, Manifest(tag={}))
    manifest.write(tmp_path, FOUND)
    assert manifest.read(tmp_path) == FOUND
    assert [file.name for file in tmp_path.iterdir()] == [manifest.NAME]


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert manifest.read(tmp_path) is None
    manifest.write(tmp_path, FOUND)
    manifest.remove(tmp_path)
    assert manifest.read(tmp_path) is None
    manifest.remove(tmp_path)


@pytest.mark.parametrize("at", [0, 9, 30, -1])
def test_a_changed_byte_is_seen(tmp_path: Path, at: int) -> None:
    manifest.write(tmp_path, FOUND)
    file = tmp_path / manifest.NAME
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedManifestError, match=r"^the checksum of the manifest is another$"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"format":1}', "the manifest has format 1, not 3"),
        (b'{"format":2,"tag":{},"dropped":[],"runs":[]}', "the manifest has format 2, not 3"),
        (b'{"format":3}', "the manifest cannot be read: KeyError('runs')"),
        (b"[]", "the manifest cannot be read: TypeError('list indices must be integers or slices, not str')"),
        (b'{"format":3,"tag":{},"dropped":[],"runs":[{"size":1}]}', "the manifest cannot be read: TypeError("),
        (b"{", "the manifest cannot be read: JSONDecodeError("),
    ],
)
def test_another_form_is_refused(tmp_path: Path, body: bytes, message: str) -> None:
    (tmp_path / manifest.NAME).write_bytes(f"{zlib.crc32(body):08x}".encode() + b"\n" + body)
    with pytest.raises(DamagedManifestError) as caught:
        manifest.read(tmp_path)
    assert str(caught.value).startswith(message)
