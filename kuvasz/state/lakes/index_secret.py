"""The secret half of the seed of keys' hashes, one for all processes of a cluster: they read each other's indexes.

It is that of the process which came first, whose indexes stay what they are. See `kuvasz.index.seed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import StateError

if TYPE_CHECKING:
    from kuvasz.state.coordinator.documents import Documents

#: Of the document.
_NAME: Final = "index"


class SharedIndexSecret:
    """The secret as the coordinator has it.

    Args:
        documents: Where it is.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def agree(self, own: bytes) -> bytes:
        """Return the secret of all, which is that of this process if there is none yet.

        Args:
            own: This process's secret.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: It cannot be read or written.
        """
        found: list[Any] = []

        def change(before: Any) -> Any:  # noqa: ANN401 (JSON)
            found.append(before if before is not None else {"secret": own.hex()})
            return found[0]

        self._documents.change(_NAME, change)
        try:
            return bytes.fromhex(found[0]["secret"])
        except (ValueError, KeyError, TypeError) as error:
            hint = "remove the document: indexes are read from the tables again then"
            raise StateError(f"{self._documents.place}: the secret of indexes cannot be read", hint=hint) from error


__all__ = ["SharedIndexSecret"]
