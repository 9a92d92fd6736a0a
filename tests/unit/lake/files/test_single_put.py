"""Small files on S3 are one request: the file system differs from PyIceberg's own in that alone."""

from __future__ import annotations

from pyarrow.fs import S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.single_put import StoreFiles

PROPERTIES = {
    "s3.endpoint": "http://127.0.0.1:9",
    "s3.access-key-id": "a",
    "s3.secret-access-key": "b",
    "s3.session-token": "c",
    "s3.request-timeout": "7",
    "s3.force-virtual-addressing": "true",
    "client.region": "eu-north-1",
}


def settings_of(io: PyArrowFileIO) -> dict[str, object]:
    store = io.fs_by_scheme("s3", "bucket")
    assert isinstance(store, S3FileSystem)
    return store.__reduce__()[1][0]


def test_a_store_is_opened_late_and_is_otherwise_that_of_pyiceberg():
    ours, plain = (settings_of(one) for one in (file_io(PROPERTIES, "s3://bucket/a"), PyArrowFileIO(PROPERTIES)))

    assert ours == {**plain, "allow_delayed_open": True}
    assert plain["allow_delayed_open"] is False


def test_a_retry_strategy_is_kept():
    name = "pyarrow.fs.AwsStandardS3RetryStrategy"
    assert settings_of(StoreFiles({**PROPERTIES, "s3.retry-strategy-impl": name}))["allow_delayed_open"] is False


def test_another_file_io_of_the_map_is_used_as_it_is():
    chosen = file_io({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}, "s3://bucket/a")

    assert not isinstance(chosen, PyArrowFileIO)
