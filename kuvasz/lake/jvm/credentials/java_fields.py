"""Fields and methods that Java objects have of their own class, whoever may see them."""

from __future__ import annotations

from typing import Any


def field(of: Any, name: str) -> Any:  # noqa: ANN401 (Java objects)
    """Return a field."""
    found = of.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found


def value(of: Any, name: str) -> Any:  # noqa: ANN401
    """Return what a field has."""
    return field(of, name).get(of)


def method(of: Any, name: str) -> Any:  # noqa: ANN401
    """Return a method without arguments."""
    found = of.getClass().getDeclaredMethod(name, None)
    found.setAccessible(True)
    return found


__all__ = ["field", "method", "value"]
