from __future__ import annotations

from kuvasz.lake.files.live_file import LiveFile


def file(path: str, sequence: int) -> LiveFile:
    return LiveFile(data={"file-path": path}, deletes=(), sequence=sequence)


def test_older_commits_come_first_and_folders_do_not_count() -> None:
    files = [file("s3://b/y/00002.parquet", 7), file("s3://b/z/00001.parquet", 7), file("s3://a/9.parquet", 3)]
    assert sorted(files, key=lambda one: one.age) == [files[2], files[1], files[0]]
