"""PyIceberg's FileIO of PyArrow, with small files written in one request.

Left to itself PyArrow opens every file on S3 as an upload in parts: three requests, one after another, for what fits
into one. Opened when the first part is full (5 MB), or closed before that, a small file is a single PUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.io import S3_RETRY_STRATEGY_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO
from typing_extensions import override

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class StoreFiles(PyArrowFileIO):
    """Errors of opening a file show when it is closed."""

    @override
    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        found = super()._initialize_s3_fs(netloc)
        if S3_RETRY_STRATEGY_IMPL in self.properties:
            return found  # it is not among what a copy is made of
        make, (settings,) = found.__reduce__()
        copy: FileSystem = make({**settings, "allow_delayed_open": True})
        return copy


__all__ = ["StoreFiles"]
