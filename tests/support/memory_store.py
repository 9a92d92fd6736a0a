"""A store of objects in memory, which may be away."""

from __future__ import annotations

from collections.abc import Iterable


class MemoryStore:
    """See `kuvasz.staging.ports.ObjectStore`."""

    place = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_away = False
        self.reads = 0

    def put(self, name: str, *pieces: bytes) -> None:
        if self.is_away:
            raise OSError("the store is away")
        self.objects[name] = b"".join(pieces)

    def get(self, name: str, at: int, size: int) -> bytes:
        self.reads += 1
        if self.is_away:
            raise OSError("the store is away")
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name][at : at + size]

    def remove(self, names: Iterable[str]) -> list[str]:
        if self.is_away:
            return []
        return [name for name in names if self.objects.pop(name, b"") is not None]

    def names(self) -> list[str]:
        return list(self.objects)


__all__ = ["MemoryStore"]
