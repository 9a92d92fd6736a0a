"""Files on S3 are written, read, refused and deleted as PyIceberg's FileIO does it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from kuvasz.lake.files.folder_files import Files
from kuvasz.lake.files.s3_files import StoreFiles
from tests.support.stores import S3

NAMES = ("plain.parquet", "deep/er/file", "a b+ä%20.x", "semi;colon", "cut#here", "cut?here")


def outcome(step: Callable[[], object]) -> object:
    """Return what a step gives, or which error."""
    try:
        return step()
    except OSError as error:
        return type(error)


def life(io: Files, s3: S3, name: str) -> list[object]:
    """Return what is seen of a file from before it is there until it is gone."""
    folder = f"files-{uuid.uuid4().hex}"
    location = f"s3://{S3.bucket}/{folder}/{name}"

    def there() -> list[str]:
        # PyArrow leaves an empty object where a folder was.
        return sorted(key.removeprefix(folder) for key in s3.keys(f"{folder}/") if not key.endswith("/"))

    found = io.new_input(location)
    seen: list[object] = [outcome(found.__len__), outcome(found.open), found.exists(), there()]
    seen.append(outcome(lambda: io.delete(location)))
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(b"0123456789")
        seen.append(stream.tell())
    with io.new_input(location).open() as stream:
        stream.seek(3)
        seen.append(bytes(stream.read(4)))
    found = io.new_input(location)
    seen += [len(found), found.exists(), outcome(io.new_output(location).create), there()]
    nowhere = io.new_output(f"s3://nowhere/{name}")
    seen += [outcome(nowhere.exists), outcome(lambda: nowhere.create(overwrite=True).close())]
    io.delete(location)
    return [*seen, there()]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_where_pyiceberg_has_them(s3: S3, name: str) -> None:
    seen = life(StoreFiles(s3.properties), s3, name)
    assert seen == life(PyArrowFileIO(s3.properties), s3, name)
    assert seen[:7] == [FileNotFoundError, FileNotFoundError, False, [], FileNotFoundError, 10, b"3456"]
    assert (seen[-1], seen[9]) == ([], FileExistsError)


def test_who_may_not_is_told_so(s3: S3) -> None:
    location = f"s3://{S3.bucket}/denied-{uuid.uuid4().hex}"

    def seen(io: Files) -> list[object]:
        found = io.new_output(location)
        steps: list[Callable[[], object]] = [
            found.exists, found.__len__, found.create, io.new_input(location).open, lambda: io.delete(location),
        ]  # fmt: skip
        return [outcome(step) for step in steps]

    with s3.checking_credentials():
        ours, theirs = seen(StoreFiles(s3.properties)), seen(PyArrowFileIO(s3.properties))
    assert ours == theirs
    assert all(isinstance(one, type) and issubclass(one, OSError) for one in ours), ours


def test_a_small_file_is_one_request(s3: S3) -> None:
    location = f"s3://{S3.bucket}/small-{uuid.uuid4().hex}"
    with StoreFiles(s3.properties).new_output(location).create(overwrite=True) as stream:
        stream.write(b"row")
    key = location.removeprefix(f"s3://{S3.bucket}/")
    # Of an upload in parts the tag would say how many there are.
    assert "-" not in s3.client.head_object(Bucket=S3.bucket, Key=key)["ETag"]
