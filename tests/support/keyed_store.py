"""An S3 store that knows one key at a time, another after ``POST /key/NAME``; run as a module, with its port."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import run_simple

BUCKET = "keyed"

#: The key that it knows at first.
FIRST = "FIRSTKEY"

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")


class KeyedStore:
    """A store behind a door.

    Args:
        store: The store.
    """

    def __init__(self, store: Callable[..., Iterable[bytes]]) -> None:
        self._store = store
        self._key = FIRST

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one call."""
        path = environ["PATH_INFO"]
        if path.startswith("/key/"):
            self._key = path.removeprefix("/key/")
            start("204 NO CONTENT", [])
            return []
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        if found is not None and found[1] == self._key:
            return self._store(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = b"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>"
        start("403 FORBIDDEN", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


def main(port: int) -> None:
    """Serve until the process ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
    store = KeyedStore(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, store, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
