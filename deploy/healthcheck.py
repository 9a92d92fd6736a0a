"""Whether the kuvasz of a container lives: ends with 0, or with 1 and the reason.

By HTTP, or by HTTPS where the map has `server.tls`: whose certificate that is, says nothing of whether it lives.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import urllib.request

_PATIENCE_S = 5.0


def main() -> str | None:
    """Return why it does not live; None: it does."""
    port = os.environ.get("KUVASZ_SERVER__ADDRESS", "").rpartition(":")[2] or "8000"
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname = False
    any_certificate.verify_mode = ssl.CERT_NONE
    reasons = []
    for scheme, context in (("http", None), ("https", any_certificate)):
        url = f"{scheme}://127.0.0.1:{port}/livez"
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE_S, context=context):  # noqa: S310 (of this machine)
                return None
        except (OSError, http.client.HTTPException) as error:
            reasons.append(f"{url}: {error}")
    return "; ".join(reasons)


if __name__ == "__main__":
    sys.exit(main())
