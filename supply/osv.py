"""Asks the database of OSV for the holes of jars (https://google.github.io/osv.dev/post-v1-query/)."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from supply.hole import DatabaseUnreachableError, Hole
from supply.jar import Jar

URL = "https://api.osv.dev/v1/query"
_SECONDS = 30.0
_AT_A_TIME = 8


def holes_of(jars: Iterable[Jar], url: str = URL) -> tuple[Hole, ...]:
    """Return the holes of jars.

    Raises:
        DatabaseUnreachableError: The database did not answer for all of them.
    """
    places = collections.defaultdict(set)
    for jar in jars:
        places[jar.name, jar.version].add(jar.holder)
    found: list[Hole] = []
    with requests.Session() as session, ThreadPoolExecutor(_AT_A_TIME) as pool:
        # It keeps few connections by default, and drops the others with a warning.
        session.mount(url, HTTPAdapter(pool_maxsize=_AT_A_TIME, max_retries=_retries()))
        answers = pool.map(lambda key: _ask(session, url, *key), places)
        for (key, holders), answer in zip(places.items(), answers, strict=True):
            found += [hole_of(*key, told, tuple(sorted(holders))) for told in answer]
    return tuple(found)


def _retries() -> Retry:
    return Retry(total=2, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("POST",))


def _ask(session: requests.Session, url: str, package: str, version: str) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    query: dict[str, Any] = {"package": {"name": package, "ecosystem": "Maven"}, "version": version}
    try:
        while True:
            answer = session.post(url, json=query, timeout=_SECONDS)
            answer.raise_for_status()
            told = answer.json()
            found += told.get("vulns", [])
            if not told.get("next_page_token"):
                return [hole for hole in found if "withdrawn" not in hole]
            query["page_token"] = told["next_page_token"]
    except (requests.RequestException, ValueError, AttributeError) as error:
        raise DatabaseUnreachableError(f"{url}: {package} {version}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return what was wrong at the bottom: around it, requests and urllib3 tell of their own parts."""
    for _ in range(10):
        below = getattr(error, "reason", None) or next(
            (one for one in error.args if isinstance(one, Exception)), None
        )
        if not isinstance(below, Exception):
            break
        error = below
    return str(error).rpartition(">: ")[2]


def hole_of(package: str, version: str, told: Mapping[str, Any], places: tuple[str, ...]) -> Hole:
    """Return a hole out of what OSV tells (https://ossf.github.io/osv-schema/)."""
    summary = str(told.get("summary") or told.get("details") or "no summary")
    return Hole(
        package=package,
        version=version,
        names=tuple(sorted({str(told["id"]), *map(str, told.get("aliases", []))})),
        summary=" ".join(summary.split())[:200],
        fixed=tuple(sorted(set(_fixed(package, told)))),
        places=places,
    )


def _fixed(package: str, told: Mapping[str, Any]) -> Iterator[str]:
    ranges = (
        one.get("ranges", []) for one in told.get("affected", []) if one.get("package", {}).get("name") == package
    )
    for one in itertools.chain.from_iterable(ranges):
        yield from (event["fixed"] for event in one.get("events", []) if "fixed" in event)


__all__ = ["URL", "hole_of", "holes_of"]
