"""Manifest lists and manifests of many snapshots, against PyIceberg's own reading of each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from kuvasz.verbs.lake.manifests import ManifestReader

IO = load_file_io({})
CODECS = [name for name in KNOWN_CODECS if name in {"null", "deflate", "zstandard"}]


def manifest(number: int, added: int = 1, folder: str = "lake") -> ManifestFile:
    bounds = [PartitionFieldSummary(False, False, bytes([number % 7]), b"\xff" * (number % 300))]
    return ManifestFile.from_args(
        manifest_path=f"{folder}/metadata/{number:05d}-{'m' * (number % 200)}.avro", manifest_length=number,
        partition_spec_id=0, content=ManifestContent(number % 2), sequence_number=1 + number,
        min_sequence_number=1, added_snapshot_id=number, added_files_count=added, existing_files_count=0,
        deleted_files_count=0, added_rows_count=9, existing_rows_count=0, deleted_rows_count=0, partitions=bounds,
    )  # fmt: skip


def written(path: Path, manifests: list[ManifestFile], codec: str = "deflate", version: int = 2) -> str:
    output = IO.new_output(str(path))
    with write_manifest_list(version, output, 1, None, 5000, codec) as writer:  # type: ignore[arg-type]
        writer.add_manifests(manifests)
    return str(path)


def shown(manifests: list[ManifestFile]) -> list[str]:
    return [repr(one) for one in manifests]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2])
def test_lists_are_read_as_pyiceberg_reads_each_of_them(tmp_path: Path, codec: str, version: int) -> None:
    """Manifests come, go, change their place, and one path is another manifest in a later list."""
    dice = random.Random(codec)  # noqa: S311
    reader, known = ManifestReader(IO), [manifest(2 * number) for number in range(9)]
    for number in range(40):
        known.insert(dice.randrange(len(known)), manifest(100 + 2 * number))
        del known[dice.randrange(len(known))]
        at = dice.randrange(len(known))
        known[at] = manifest(known[at].added_snapshot_id or 0, added=number)
        dice.shuffle(known)
        path = written(tmp_path / f"{number}.avro", known, codec, version)
        expected = list(read_manifest_list(IO.new_input(path)))
        assert len(expected) == len(known)
        assert shown(reader.of_list(path)) == shown(expected)


def test_an_entry_that_is_known_is_not_made_again(tmp_path: Path) -> None:
    reader, one = ManifestReader(IO), manifest(2)
    (first,) = reader.of_list(written(tmp_path / "1.avro", [one]))
    assert any(first is again for again in reader.of_list(written(tmp_path / "2.avro", [manifest(4), one])))


def test_lists_of_two_writers_are_told_apart(tmp_path: Path) -> None:
    """Entries with the same bytes may mean something else by another schema."""
    reader = ManifestReader(IO)
    paths = [written(tmp_path / f"{version}.avro", [manifest(2), manifest(4)], version=version) for version in (1, 2)]
    for path in (*paths, *reversed(paths)):
        assert shown(reader.of_list(path)) == shown(list(read_manifest_list(IO.new_input(path))))


def test_the_entries_of_a_manifest_come_with_what_format_3_has_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.avro"
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path="a.parquet", file_format=FileFormat.PARQUET, partition=Record(),
        record_count=3, file_size_in_bytes=99, lower_bounds={1: b"\x01"}, upper_bounds={1: b"\x07"},
    )  # fmt: skip
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file)
    output = IO.new_output(str(path))
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, Schema(), output, 1, "deflate") as writer:
        writer.add_entry(entry)
    (found,) = ManifestReader(IO).entries(str(path))
    assert (found.status, found.data_file.file_path) == (ManifestEntryStatus.ADDED, "a.parquet")
    assert (found.data_file.lower_bounds, found.data_file.upper_bounds) == ({1: b"\x01"}, {1: b"\x07"})
    assert found.data_file[-1] is None, "a form of before has no size of a vector"


def test_a_list_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "1.avro", [manifest(number) for number in range(50)]))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises((ValueError, EOFError)):
        ManifestReader(IO).of_list(str(path))
