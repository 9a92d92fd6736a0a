"""The process of catalog and store: ``python -m tests.support.vending.server CATALOG_PORT STORE_PORT LIFE APART``."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

import flask
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import run_simple

from tests.support.vending.admission import Admission
from tests.support.vending.catalog import RestCatalog, application
from tests.support.vending.loans import Loans

#: The bucket of the lake.
BUCKET = "lent"

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")


class Guard:
    """A store that takes calls with a loan alone.

    Args:
        store: The store behind.
        loans: Those there are.
    """

    def __init__(self, store: Callable[..., Iterable[bytes]], loans: Loans) -> None:
        self._store = store
        self._loans = loans

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one call."""
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        code = self._loans.why_refused(found.group(1) if found else "", token, _place(environ), time.time())
        if code is None:
            return self._store(environ, start)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"].read(length)
        # As S3 answers: what it refuses, it names.
        key = found.group(1) if found else ""
        body = (
            f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>refused: {code}</Message>"
            f"<AWSAccessKeyId>{key}</AWSAccessKeyId><Token-0>{token}</Token-0></Error>"
        ).encode()
        start("403 FORBIDDEN", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


def _place(environ: dict[str, Any]) -> str | None:
    if environ.get("QUERY_STRING", "").startswith("delete"):
        return None
    bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    query = dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", "")))
    return f"s3://{bucket}/{key or query.get('prefix', '')}".rstrip("/")


def main(catalog_port: int, store_port: int, life_s: float, *, apart: bool) -> None:
    """Serve until the process ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    loans = Loans(life_s)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
    store = Guard(DomainDispatcherApplication(create_backend_app), loans)
    serve = threading.Thread(
        target=run_simple, args=("127.0.0.1", store_port, store), daemon=True,
        kwargs={"threaded": True, "request_handler": MotoRequestHandler},
    )  # fmt: skip
    serve.start()
    config = {
        "s3.endpoint": f"http://127.0.0.1:{store_port}", "s3.path-style-access": "true", "client.region": "us-east-1",
    }  # fmt: skip
    server = application(RestCatalog(f"s3://{BUCKET}/wh", loans, config, apart=apart))
    admission = Admission()
    admission.guard(server)

    @server.get("/loans")
    def loans_there_were() -> Any:
        return flask.Response(json.dumps({"count": loans.count, "refused": loans.refused}))

    @server.post("/admit")
    def admit() -> Any:
        admission.admit(*flask.request.get_json())
        return "", 204

    @server.post("/life/<float:seconds>")
    def live(seconds: float) -> Any:
        loans.life_s = seconds
        return "", 204

    run_simple("127.0.0.1", catalog_port, server, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), apart=sys.argv[4] == "apart")
