"""`python -m kuvasz` is `kuvasz`: the command line, in a process of its own."""

from __future__ import annotations

import gc

#: When Python looks for garbage: so many new objects, so many looks at those, so many at what was left of them. By
#: default 700, 10 and 10, which looks at half a million objects of modules again and again: a fifth of all loading.
#: A verb ends before that matters; what runs on sets its own when it has loaded all (`kuvasz.cli`).
_LOADING = 400_000, 50, 100


def main() -> None:
    """Run the command line."""
    gc.set_threshold(*_LOADING)
    from kuvasz.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
