"""What an operator keeps of a kuvasz that is stopped, and puts back one day."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def backed_up(parts: Iterable[Path], to: Path) -> None:
    """Copy files and folders into a new folder."""
    to.mkdir()
    for part in parts:
        (shutil.copytree if part.is_dir() else shutil.copy2)(part, to / part.name)


def put_back(parts: Iterable[Path], backup: Path) -> None:
    """Have files and folders be as they were copied."""
    for part in parts:
        if part.is_dir():
            shutil.rmtree(part)
            shutil.copytree(backup / part.name, part)
        else:
            shutil.copy2(backup / part.name, part)


__all__ = ["backed_up", "put_back"]
