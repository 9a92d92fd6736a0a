"""The credentials that a catalog has lent, and whether the store takes them."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """Credentials of one table."""

    key: str
    secret: str
    token: str
    location: str
    ends: float  #: unix seconds


class Loans:
    """Every loan there was.

    Args:
        life_s: Seconds that one lives.
    """

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self._lock = threading.Lock()
        self._by_key: dict[str, Loan] = {}
        self.refused: dict[str, int] = {}  #: code -> times

    def lend(self, location: str) -> Loan:
        """Make new ones for a table."""
        name = uuid.uuid4().hex
        loan = Loan(
            key=f"PLANTEDKEY{name}", secret=f"PLANTEDSECRET{name}", token=f"PLANTEDTOKEN{name}", location=location,
            ends=time.time() + self.life_s,
        )  # fmt: skip
        with self._lock:
            self._by_key[loan.key] = loan
        return loan

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self._by_key)

    def why_refused(self, key: str, token: str, place: str | None, now: float) -> str | None:
        """Return S3's code for what is wrong with a call; None if it is right.

        Args:
            key: The access key id.
            token: The session token.
            place: `s3://bucket/key`, or a prefix that is listed; None for what names its objects elsewhere.
            now: Unix seconds.
        """
        loan = self._by_key.get(key)
        code = None
        if loan is None:
            code = "InvalidAccessKeyId"
        elif loan.token != token:
            code = "InvalidToken"
        elif now > loan.ends:
            code = "ExpiredToken"
        elif place is not None and not f"{place}/".startswith(f"{loan.location}/"):
            code = "AccessDenied"
        if code is not None:
            with self._lock:
                self.refused[code] = self.refused.get(code, 0) + 1
        return code


__all__ = ["Loan", "Loans"]
