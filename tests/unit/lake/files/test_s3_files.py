"""S3 is opened by the map's properties as PyIceberg opens it; its files: `integration/test_s3_files`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest
from pyarrow.fs import S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from kuvasz.lake.files import s3_files
from kuvasz.lake.files.file_io import file_io, listing, needs_pyiceberg
from kuvasz.lake.files.s3_files import StoreFiles, settings_of
from kuvasz.lake.files.store_access import StoreAccess, lease_of

PROPERTIES = {
    "s3.endpoint": "http://127.0.0.1:9",
    "s3.access-key-id": "a",
    "s3.secret-access-key": "b",
    "s3.session-token": "c",
    "s3.request-timeout": "7",
    "s3.force-virtual-addressing": "true",
    "client.region": "eu-north-1",
}

OTHERS = (
    {},
    {"s3.connect-timeout": "1.5", "s3.force-virtual-addressing": "no", "s3.proxy-uri": "http://proxy:3128"},
    {"s3.region": "us-west-2", "s3.resolve-region": "false"},
    {"s3.access-key-id": "", "client.access-key-id": "d"},
    {"s3.secret-access-key": "", "client.secret-access-key": "e"},
    {"s3.endpoint": "", "s3.session-token": "", "client.session-token": "f", "s3.path-style-access": "true"},
    {"s3.force-virtual-addressing": "", "s3.profile-name": "nobody", "s3.signer": "any"},
)
ROLES = {"client.role-arn": "arn:aws:iam::1:role/x", "s3.role-session-name": "kuvasz", "client.region": "eu-north-1"}
ANONYMOUS = {"s3.anonymous": "True", "client.region": "eu-north-1"}


def made(store: object) -> dict[str, object]:
    """Return what a copy of a file system is made of."""
    assert isinstance(store, S3FileSystem)
    settings: dict[str, object] = store.__reduce__()[1][0]
    return settings


@pytest.mark.parametrize("properties", [*({**PROPERTIES, **other} for other in OTHERS), ROLES, ANONYMOUS], ids=len)
def test_a_store_is_opened_late_and_is_otherwise_that_of_pyiceberg(
    properties: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # at who gives roles, which nobody reaches
    ours = made(StoreFiles(properties).found("s3://bucket/a")[0])
    plain = made(PyArrowFileIO(dict(properties)).fs_by_scheme("s3", "bucket"))
    assert ours == {**plain, "allow_delayed_open": True}
    assert plain["allow_delayed_open"] is False


def test_a_region_that_nobody_tells_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def region_of(bucket: str) -> str | None:
        asked.append(bucket)
        return None if bucket == "elsewhere" else "eu-west-3"

    monkeypatch.setattr(s3_files, "_region_of", region_of)
    assert settings_of({}, "bucket")["region"] == "eu-west-3"
    assert "region" not in settings_of({}, "elsewhere")
    told = {"client.region": "eu-north-1", "s3.resolve-region": "true"}
    assert settings_of(told, "bucket")["region"] == "eu-west-3"
    assert settings_of(told, "elsewhere")["region"] == "eu-north-1"
    assert asked == ["bucket", "elsewhere", "bucket", "elsewhere"]


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(ValueError, match=r"s3\.anonymous is neither true nor false: 'maybe'"):
        settings_of({**PROPERTIES, "s3.anonymous": "maybe"}, "bucket")


@pytest.mark.parametrize("location", ["s3://bucket/a/b", "s3a://bucket/a%20b", "s3n://bucket/ä+b", "s3://b.ucket/a/"])
def test_locations_are_read_as_pyiceberg_reads_them(location: str) -> None:
    assert StoreFiles(PROPERTIES).found(location)[1] == PyArrowFileIO.parse_location(location)[2]


@pytest.mark.parametrize(
    ("location", "more", "is_needed"),
    [("s3://b", {}, False), ("s3a://b", {}, False), ("gs://b", {}, True), ("file:///b", {}, False),
     ("s3://b", {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}, True),
     ("s3://b", {"s3.retry-strategy-impl": "pyarrow.fs.AwsStandardS3RetryStrategy"}, True)],
)  # fmt: skip
def test_pyiceberg_is_needed_for_what_it_alone_can(location: str, more: dict[str, str], *, is_needed: bool) -> None:
    properties = {**PROPERTIES, **more}
    assert needs_pyiceberg(properties, location) is is_needed
    if location.startswith("s3"):
        assert isinstance(file_io(properties, location), StoreFiles) is not is_needed


def test_what_a_catalog_lends_for_a_table_opens_its_files() -> None:
    access = StoreAccess(PROPERTIES, {})
    lent = {"s3.access-key-id": "lent", "s3.session-token": "of a while"}
    lease = lease_of("shop.items", "s3://bucket/items", lent)
    assert lease is not None
    access.take(lease)
    found = {}
    for location in ("s3://bucket/items/data/1.parquet", "s3://bucket/orders/data/1.parquet"):
        store, _ = listing(access, location) or (None, "")
        found[location.split("/")[3]] = made(store)["access_key"]
    assert found == {"items": "lent", "orders": "a"}


@pytest.mark.process
def test_a_store_is_reached_without_pyiceberg_and_compiled_code() -> None:
    program = (
        "import sys; from kuvasz.lake.files.object_folder import ObjectFolder\n"
        f"folder = ObjectFolder('s3://bucket/log', {PROPERTIES!r} | {{'s3.connect-timeout': '0.1'}})\n"
        "print(folder.remove(['a']), 'pyarrow.fs' in sys.modules, *({'pyiceberg', 'numba'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]
