"""The tables of a program, each under whatever name it has now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.model import TableType

if TYPE_CHECKING:
    from collections.abc import Sequence


class Table:
    """A source table that is a clone."""

    kind = TableType.CLONE

    def __init__(self, target: str, *, has_key: bool = True) -> None:
        self.target = target
        self.name = target
        self.mapped = target
        self.has_key = has_key
        self.is_full = not has_key  #: REPLICA IDENTITY FULL
        self.columns = ["n"]
        self.is_parted = target == "parted"
        self.parts: list[int] = []  #: hundreds of ids that have a partition
        self.is_mapped = True
        self.is_paused = False
        self.namespace = "shop"  #: of the target, which a map may move and move back
        self.even_alone = False  #: a filter of the map

    @property
    def identifier(self) -> str:
        return f"{self.namespace}.{self.target}"

    @property
    def entry(self) -> dict[str, str]:
        """What the map says of it."""
        return {"target": self.identifier} | ({"filter": "id % 2 = 0"} if self.even_alone else {})

    @property
    def where(self) -> str:
        """The rows of the source that are to be in the lake."""
        return "id % 2 = 0" if self.even_alone else "true"

    @property
    def may_be_filtered(self) -> bool:
        """Whether another filter of the map is something that the table gets over by itself."""
        return self.has_key and not self.is_parted

    def creation(self) -> Sequence[str]:
        """The statements that make it, empty."""
        key = " PRIMARY KEY" if self.has_key else ""
        parted = " PARTITION BY RANGE (id)" if self.is_parted else ""
        made = [f"CREATE TABLE {self.name} (id int{key}, n text){parted}"]
        return made if self.has_key else [*made, f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"]

    def defaults(self) -> Sequence[str]:
        """What a column may be added with."""
        return ("", " DEFAULT 'some'", " DEFAULT md5(random()::text)")


class Growing(Table):
    """A source table whose past the lake keeps; each of its rows gets a stamp whenever it is written."""

    def __init__(self, kind: TableType) -> None:
        super().__init__({"append": "visits", "changelog": "moves", "history": "prices"}[kind])
        self.kind = kind

    @property
    def entry(self) -> dict[str, str]:
        return {"target": self.identifier, "type": str(self.kind)}

    @property
    def may_be_filtered(self) -> bool:
        return False

    def creation(self) -> Sequence[str]:
        return (
            f"CREATE TABLE {self.name} (id int PRIMARY KEY, n text, stamp text)",
            f"CREATE TRIGGER stamp BEFORE INSERT OR UPDATE OR DELETE ON {self.name}"
            f" FOR EACH ROW EXECUTE FUNCTION stamp('{self.target}')",
        )

    def defaults(self) -> Sequence[str]:
        # What old rows have of a volatile one only the source knows, and what is kept is not copied again for that.
        return ("", " DEFAULT 'some'")


class Members(Table):
    """Several source tables that are one target, by a `partitions_regex` that takes them in, or none for a while."""

    def __init__(self) -> None:
        super().__init__("events")
        self.is_taken = True
        self.names: list[str] = []

    @property
    def entry(self) -> dict[str, str]:
        return {"partitions_regex": "events_[0-9]+" if self.is_taken else "nothing_[0-9]+"}

    @property
    def may_be_filtered(self) -> bool:
        return False
