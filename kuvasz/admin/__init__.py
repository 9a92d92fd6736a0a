"""A running kuvasz seen and steered from outside: health, status, metrics and a small management API over HTTP."""

from __future__ import annotations

#: In the state folder while kuvasz runs: the server's url and the token for what changes something.
SERVER_FILE = "server.json"
