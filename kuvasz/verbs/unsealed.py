"""Advice of ``kuvasz check``: where rows lie as their sources sent them, though the lake is not to show all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.config import sources as config_sources
from kuvasz.config.model import ClusterRole
from kuvasz.source.check.finding import Finding, Severity
from kuvasz.sync.rules.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.config.model import Config
    from kuvasz.ports import Target

_MACHINE = "machine"
_ENCRYPTION = "spark.io.encryption.enabled"
_MOST_NAMED = 3


def findings(config: Config) -> Iterator[Finding]:
    """Yield advice, as far as the map leaves something as it is."""
    targets = {
        spec.identifier: target_of(spec) for source in config_sources.resolve(config) for spec in source.tables
    }
    hiding = [target for target in targets.values() if target.is_hiding]
    if not hiding:
        return
    pipeline, cluster = config.pipeline, config.cluster
    encryption = str(config.spark.conf.get(_ENCRYPTION, "true")).lower()
    if cluster.role is not ClusterRole.READ and encryption != "true":
        yield _advice(
            "spark_files", f"`{_ENCRYPTION}` is {encryption}: PySpark hands rows and keys on in files", "true",
            f"take `{_ENCRYPTION}` out of `spark.conf`",
        )  # fmt: skip
    if pipeline.seal_secret is not None:
        return
    told = "as their source sends them, with what the lake is not to show"
    fix = "set `pipeline.seal_secret`, to have them encrypted"
    kept = [target for target in hiding if target.filter is not None or target.set is not None]
    if kept and pipeline.park_bytes and cluster.role is not ClusterRole.READ:
        yield _advice("parked", f"rows of {_named(kept)} are parked {told}", "a secret that seals them", fix)
    if cluster.log is not None:
        yield _advice("staged", f"rows of {_named(hiding)} are staged {told}", "a secret that seals them", fix)


def _advice(check: str, value: str, needed: str, fix: str) -> Finding:
    return Finding(
        source=_MACHINE, check=check, value=value, needed=needed, ok=False, severity=Severity.ADVICE, fix=fix
    )


def _named(targets: list[Target]) -> str:
    names = sorted(target.name for target in targets)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


__all__ = ["findings"]
