"""A scenario: options with their defaults as dataclass fields, and a measurement on a fresh stand."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.outcome import Outcome
    from benchmarks.stand import Stand

#: The sizes of a run: function only, some minutes, and those of the targets.
SIZES = ("tiny", "quick", "full")


class Scenario(abc.ABC):
    """Subclasses are frozen dataclasses whose fields are the options."""

    @abc.abstractmethod
    def measure(self, stand: Stand) -> Outcome:
        """Run it once.

        Raises:
            WrongResultError: The lake differs from its source.
            RuntimeError: kuvasz or a reference failed.
        """

    @property
    def options(self) -> dict[str, Any]:
        """The options with their values."""
        return dict(dataclasses.asdict(self))  # type: ignore[call-overload]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A scenario by name."""

    name: str
    summary: str
    build: type[Scenario]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: what makes it this scenario
    tiny: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    quick: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    full: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def options(self) -> dict[str, type]:
        """Return the options with their types."""
        return {field.name: type(field.default) for field in dataclasses.fields(self.build)}  # type: ignore[arg-type]

    def make(self, size: str, given: Mapping[str, Any]) -> Scenario:
        """Return the scenario in a size; options given by hand win."""
        return self.build(**{**self.fixed, **getattr(self, size), **given})
