"""`python -m kuvasz` is `kuvasz`."""

from __future__ import annotations

from kuvasz.cli import main

main()
