"""What the lake's files are reached with: the map's own properties, and per table what its catalog lends.

A REST catalog may vend credentials with each table that it loads (Iceberg REST specification, `LoadTableResult`,
`config` and `storage-credentials`). They are of that table alone, and expire.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kuvasz.backoff import Backoff
from kuvasz.config.secrets import LiveTexts

if TYPE_CHECKING:
    from kuvasz.config.model import LakeConfig

#: Properties that are a store's, of all that come with a table.
_OF_STORES = ("s3.", "gcs.", "adls.", "client.")

#: When properties end, in ms since 1970: `s3.session-token-expires-at-ms`, `gcs.oauth2.token-expires-at`, …
_EXPIRES = "expires-at"

#: Seconds after which properties are renewed that do not say when they end; a token of STS lives 900 s at least.
_UNTOLD_S = 300.0

#: Seconds between two loads of one table at least, whatever the clocks and lives are.
_PAUSE_S = 1.0

#: The same of loads that fail: a catalog that is back is asked after that long.
_LONGEST_PAUSE_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a catalog lends for the files of one table.

    Its properties stand in no ``repr``: they are secrets.
    """

    table: str  #: `namespace.table`
    location: str
    properties: Mapping[str, str] = dataclasses.field(repr=False)
    renew_at: float  #: unix seconds: half of its life, so that whatever begins before has the other half

    @property
    def is_due(self) -> bool:
        """Whether it is to be renewed."""
        return time.time() >= self.renew_at


def lease_of(
    table: str,
    location: str,
    config: Mapping[str, str],
    credentials: Iterable[tuple[str, Mapping[str, str]]] = (),
) -> Lease | None:
    """Return what a table was loaded with; None if nothing of it is for the store.

    Args:
        table: `namespace.table`.
        location: Where its files are.
        config: The properties of its FileIO.
        credentials: By prefix of locations; the longest one that fits wins over `config`.
    """
    fitting = [(prefix, found) for prefix, found in credentials if location.startswith(prefix)]
    longest = max(fitting, key=lambda one: len(one[0]), default=("", {}))[1]
    lent = {name: value for name, value in {**config, **longest}.items() if name.startswith(_OF_STORES)}
    if not lent:
        return None
    now = time.time()
    ends = [int(value) / 1000 for name, value in lent.items() if _EXPIRES in name and value.isdecimal()]
    life = (min(ends) - now) / 2 if ends else _UNTOLD_S
    return Lease(table=table, location=location, properties=lent, renew_at=now + max(life, _PAUSE_S))


class StoreAccess(Mapping[str, str]):
    """The properties of a lake's FileIO: as a mapping the map's own, and `at` a place those of its table.

    What is pickled has the leases as they are, renewed before if they are due; where it arrives, one that ends is
    renewed from the catalog itself. Safe to use from several threads.

    Args:
        fixed: The map's own.
        catalog: The catalog's properties, as PyIceberg takes them; of those that are asked for again, what they are
            then is what travels.
    """

    def __init__(self, fixed: Mapping[str, str], catalog: Mapping[str, str]) -> None:
        self._fixed = dict(fixed)
        self._catalog = catalog
        self._leases: dict[str, Lease] = {}  # by location
        self._renewers: dict[str, Callable[[], None]] = {}  # by location; on the driver, where handles of tables are
        self._only: frozenset[str] | None = None  # locations of which leases travel; None: of all

    @override
    def __getitem__(self, name: str) -> str:
        return self._fixed[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._fixed)

    @override
    def __len__(self) -> int:
        return len(self._fixed)

    @override
    def __repr__(self) -> str:
        return f"StoreAccess({len(self._leases)} leases)"

    __str__ = __repr__

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        wanted = [one for one in list(self._leases) if self._only is None or one in self._only]
        leases = [self._fresh(self._leases[one]) for one in wanted]
        return _arrived, (self._fixed, self._catalog, leases)

    @property
    def catalog(self) -> Mapping[str, str]:
        """The catalog's properties."""
        return self._catalog

    def follow(self, properties: Mapping[str, str]) -> None:
        """Ask the catalog with other credentials from now on.

        Args:
            properties: They are among them.
        """
        from kuvasz.config.model import REST_CREDENTIALS  # which executors do without

        others = {name: value for name, value in self._catalog.items() if name not in REST_CREDENTIALS}
        self._catalog = _over(properties, others)

    def of(self, *locations: str) -> StoreAccess:
        """Return the same, of which only leases of some tables travel."""
        found = StoreAccess.__new__(StoreAccess)
        found.__dict__.update(self.__dict__)
        found._only = frozenset(locations)
        return found

    def take(self, lease: Lease, renew: Callable[[], None] | None = None) -> None:
        """Take a lease in the place of the table's earlier one.

        Args:
            lease: The lease.
            renew: What takes the next one.
        """
        if renew is not None:
            self._renewers[lease.location] = renew
        self._leases[lease.location] = lease

    def at(self, place: str) -> Mapping[str, str]:
        """Return the properties for a place in the store, renewed if they are due."""
        if self._leases:
            found, location = self._leases.get(place), place
            while found is None and "/" in location:
                location = location.rpartition("/")[0]
                found = self._leases.get(location)
            if found is not None:
                return {**self._fixed, **self._fresh(found).properties}
        return self._fixed

    def _fresh(self, lease: Lease) -> Lease:
        """Return a lease that is not due; the same if that fails, or failed just now, for it may do still."""
        if lease.is_due and _FAILURES.is_over(lease.location):
            try:
                renew = self._renewers.get(lease.location)
                renew() if renew is not None else self._ask(lease)
            except Exception:  # noqa: BLE001 (of the JVM, of PyIceberg, of their HTTP clients)
                _FAILURES.add(lease.location)
            else:
                _FAILURES.forget(lease.location)
        return self._leases[lease.location]

    def _ask(self, lease: Lease) -> None:
        """Load a table where there is no JVM to be asked."""
        found = _NEWEST.get(lease.location)
        if found is None or found.is_due:
            table = _catalog(tuple(sorted(self._catalog.items()))).load_table(lease.table)
            found = lease_of(lease.table, lease.location, {**self._fixed, **table.io.properties})
        if found is not None:
            self._leases[lease.location] = _NEWEST[lease.location] = found


class LeaseFailures:
    """When a catalog that failed may be asked for a table's lease again: else each job and file would ask a dead one.

    A process has one of it: jobs on executors, and what comes with them, are gone after a moment. From any thread.
    """

    def __init__(self) -> None:
        self._waits: dict[str, Backoff] = {}  # by location
        self._until: dict[str, float] = {}  # by location; by the monotonic clock

    def is_over(self, location: str) -> bool:
        """Whether there is none, or it was long enough ago."""
        return time.monotonic() >= self._until.get(location, 0.0)

    def add(self, location: str) -> None:
        """Note one."""
        wait = self._waits.setdefault(location, Backoff(_PAUSE_S, _LONGEST_PAUSE_S))
        self._until[location] = time.monotonic() + wait.next_s()

    def forget(self, location: str) -> None:
        """Note that it went well."""
        self._waits.pop(location, None)
        self._until.pop(location, None)


_FAILURES = LeaseFailures()

#: location -> the newest lease that this process has asked for: an executor's jobs come with their own.
_NEWEST: dict[str, Lease] = {}


@functools.lru_cache(maxsize=4)
def _catalog(properties: tuple[tuple[str, str], ...]) -> Any:  # noqa: ANN401 (imported where it is needed: it is slow)
    from pyiceberg.catalog import load_catalog

    return load_catalog("kuvasz", **dict(properties))


def _arrived(fixed: Mapping[str, str], catalog: Mapping[str, str], leases: Iterable[Lease]) -> StoreAccess:
    found = StoreAccess(fixed, catalog)
    for lease in leases:
        found.take(lease)
    return found


def _over(properties: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    return properties.over(others) if isinstance(properties, LiveTexts) else {**others, **properties}


def of_lake(lake: LakeConfig) -> Mapping[str, str]:
    """Return the properties of the FileIO of a lake's files."""
    if not lake.vends_credentials:
        return lake.live_properties
    others = {"type": "rest", "uri": lake.catalog_uri, "warehouse": lake.warehouse_location}
    return StoreAccess(lake.properties, _over(lake.live_properties, others))


def of_table(properties: Mapping[str, str], *locations: str) -> Mapping[str, str]:
    """Return properties of which only what is lent for some tables travels to executors."""
    return properties.of(*locations) if isinstance(properties, StoreAccess) else properties


__all__ = ["Lease", "LeaseFailures", "StoreAccess", "lease_of", "of_lake", "of_table"]
