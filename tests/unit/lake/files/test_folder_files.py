"""Local files are written and read as PyIceberg's FileIO does it, which is what a store's files go through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO

from kuvasz.lake.files import file_io as access
from kuvasz.lake.files.file_io import file_io, is_plain, listing
from kuvasz.lake.files.folder_files import Files, FolderFiles, path_of

NAMES = ("plain.parquet", "deep/er/file", "a b+ä%20.x", "cut#here", "cut?here", "semi;colon")


def outcome(step: Callable[[], object]) -> object:
    """Return what a step gives, or which error."""
    try:
        return step()
    except OSError as error:
        return type(error)


def life(io: Files, folder: Path, name: str) -> list[object]:
    """Return what is seen of a file from before it is there until it is gone."""
    location = f"file://{folder}/{name}"

    def there() -> list[str]:
        return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())

    found = io.new_input(location)
    seen: list[object] = [outcome(found.__len__), outcome(found.open), found.exists()]
    seen.append(outcome(lambda: io.delete(location)))
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(b"0123456789")
        seen.append(stream.tell())
    with io.new_input(location).open() as stream:
        stream.seek(3)
        seen.append(bytes(stream.read(4)))
    found = io.new_input(location)
    seen += [len(found), found.exists(), outcome(io.new_output(location).create), there()]
    seen.append(outcome(io.new_input(f"file://{folder}").open))
    io.delete(location)
    return [*seen, there()]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_where_pyiceberg_has_them(tmp_path: Path, name: str) -> None:
    seen = life(FolderFiles({}), tmp_path / "ours", name)
    assert seen == life(PyArrowFileIO({}), tmp_path / "theirs", name)
    assert seen[:6] == [FileNotFoundError, FileNotFoundError, False, FileNotFoundError, 10, b"3456"]


@pytest.mark.parametrize("location", ["file:///a/b", "file://host/a", "file:/a/b", "file:///"])
def test_locations_are_read_as_pyiceberg_reads_them(location: str) -> None:
    assert path_of(location) == PyArrowFileIO.parse_location(location)[2]


def test_who_chooses_a_file_io_has_it_also_for_folders() -> None:
    chosen = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    assert is_plain({}, "file:///lake")
    assert not any([is_plain(chosen, "file:///lake"), is_plain({}, "s3://lake"), is_plain({}, "lake")])
    assert isinstance(file_io({}, "file:///lake"), FolderFiles)
    assert isinstance(file_io(chosen, "file:///lake"), PyArrowFileIO)


def test_both_kinds_list_a_folder_and_another_one_cannot(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    chosen = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    for properties in ({}, chosen):
        found = listing(properties, f"file://{tmp_path}")
        assert found is not None
        store, path = found
        assert [info.base_name for info in store.get_file_info(FileSelector(path))] == ["a"]
    assert listing({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}, f"file://{tmp_path}") is None


@pytest.mark.process
def test_pyiceberg_is_loaded_ahead_where_it_is_needed() -> None:
    program = (
        "import sys; from kuvasz.lake.files import file_io; file_io.file_io({}, 'file:///lake')\n"
        "print('pyiceberg' in sys.modules); file_io.preload(); print('pyiceberg.io.pyarrow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert access.PRELOADED.isupper()
