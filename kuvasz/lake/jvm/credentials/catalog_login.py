"""How an open catalog lets requests in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class CatalogLogin(Protocol):
    """The login of one catalog; its errors are those of the JVM."""

    names: tuple[str, ...]  #: of the properties that are its credentials

    def connect(self, properties: Mapping[str, str]) -> None:
        """Have requests to come let in by other credentials, if these are let in at all.

        Args:
            properties: They are among them.

        Raises:
            Py4JError: Nobody is let in by them, and those before count; or it is another catalog than was expected.
        """

    def keep(self) -> None:
        """Do what it takes to be let in by them later, too. Called about once a second while there is work.

        Raises:
            Py4JError: The JVM does not answer.
        """


__all__ = ["CatalogLogin"]
