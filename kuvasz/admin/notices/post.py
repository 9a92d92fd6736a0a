"""One request to a webhook. What went wrong is told without the url, which may be a secret itself."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

#: For the connection, and for each piece of the answer.
_PATIENCE_S: Final = 10.0


class NotTaken(Exception):
    """A request that was not answered, or not with a yes; its text says why."""


class _OnlyUrl(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: nobody but the map says where something is sent."""

    @override
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a request; blocks.

    Raises:
        NotTaken: It may have arrived all the same.
    """
    opener = urllib.request.build_opener(_OnlyUrl)
    try:
        request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310 (its kind is checked)
        opener.open(request, timeout=_PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise NotTaken(f"it answers {error.code}") from None
    except urllib.error.URLError as error:
        raise NotTaken(_reason(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotTaken(_reason(error)) from None


def _reason(error: object) -> str:
    """Return why, in the words of the system, of which none quotes a url."""
    return str(getattr(error, "strerror", None) or type(error).__name__).lower()


__all__ = ["NotTaken", "post"]
