"""``kuvasz cluster groups``, ``retire`` and ``promote``: deployments with lakes of their own that hear one log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz.errors import ConfigError
from kuvasz.state.store import log_groups
from kuvasz.verbs import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.model import Config
    from kuvasz.state.staged.log_groups import LogGroups
    from kuvasz.state.staged.ports import LogGroup


def run(config: Config) -> Sequence[LogGroup]:
    """Return the groups.

    Raises:
        ConfigError: The map knows of no cluster.
        StateError: The coordinator does not answer.
    """
    return _known(config).all()


def retire(config: Config, name: str, *, is_sure: bool) -> str:
    """Forget a group whose processes are stopped; return what comes of it.

    Raises:
        ConfigError: Nobody is sure, there is no such group, or a process of it lives.
        StateError: The coordinator does not answer.
    """
    groups = _known(config)
    if not is_sure:
        raise ConfigError(
            f"cluster: to retire group {name} forgets how far its lake is, what is noted of its tables, and what is"
            " parked of them",
            hint="its tables stay, and would have to be copied again to follow; add --yes if that is meant",
        )
    groups.retire(name)
    return f"group {name} is forgotten: the log goes as soon as the other lakes have it; its tables stay as they are"


def promote(config: Config, name: str, former: str, *, is_sure: bool) -> str:
    """Have a group be the first one, whose processes are stopped as those of the first one; return what is next.

    Args:
        config: The whole configuration of any process of the cluster.
        name: The group.
        former: What the first one is called from then on.
        is_sure: Do it.

    Raises:
        ConfigError: Nobody is sure, or it cannot be.
        StateError: The coordinator does not answer.
    """
    groups = _known(config)
    if not former or "/" in former:
        raise ConfigError(f"--former {former}: must be a name without /", hint="such as --former green")
    if not is_sure:
        raise ConfigError(
            f"cluster: to promote group {name} has it order what is read, and publish its tables, from its next start"
            f" on; the first group is {former} then",
            hint="stop what applies of both, and add --yes; what reads may go on",
        )
    groups.promote(name, former)
    return (
        f"group {name} is the first one: start its processes without `cluster.group` in their map; and those of the"
        f" one before with `group: {former}` and `role: apply`, or forget it: kuvasz cluster retire {former} --yes"
    )


def _known(config: Config) -> LogGroups:
    found = log_groups(config)
    if found is None:
        hint = "docs/cluster.md says how to begin"
        raise ConfigError("cluster.coordinator is not set: there is no log", hint=hint)
    return found


def render(groups: Sequence[LogGroup]) -> str:
    """Return a table."""
    if not groups:
        return "the log has no groups: one lake alone has what is staged"
    rows = [
        (
            one.name, "applied" if one.lives else "nobody applies it", str(one.objects),
            "" if one.behind_s is None else f"{one.behind_s:.0f} s",
        )
        for one in groups
    ]  # fmt: skip
    return text.table(("group", "state", "objects to come", "behind"), rows)


def as_json(groups: Sequence[LogGroup]) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "groups": [
            {"group": one.name, "objects": one.objects, "behind_seconds": one.behind_s, "is_applied": one.lives}
            for one in groups
        ]
    }


__all__ = ["as_json", "promote", "render", "retire", "run"]
