"""``python -m kuvasz.demo``."""

from __future__ import annotations

import sys

from kuvasz.demo.run import main

if __name__ == "__main__":
    sys.exit(main())
