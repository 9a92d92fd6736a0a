"""What the staged log asks of the store that keeps its objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class ObjectStore(Protocol):
    """A folder of objects, each of which is written once. From any thread; calls block."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def put(self, name: str, *pieces: bytes) -> None:
        """Write an object of pieces, or write it once more; it is durable when this returns.

        Raises:
            OSError: It is not written, as far as is known.
        """

    def get(self, name: str, at: int, size: int) -> bytes:
        """Return some bytes of an object.

        Raises:
            FileNotFoundError: There is none of that name.
            OSError: It cannot be read now.
        """

    def remove(self, names: Iterable[str]) -> list[str]:
        """Remove objects, as far as that can be done now, and return which are gone now, or were before."""

    def names(self) -> list[str]:
        """Return the names of all objects.

        Raises:
            OSError: They cannot be listed.
        """


__all__ = ["ObjectStore"]
