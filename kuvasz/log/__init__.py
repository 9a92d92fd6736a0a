"""Log records as plain lines or as JSON, on stderr or in a file: constant messages, and the facts beside them."""

from __future__ import annotations

from kuvasz.log.lines import hide, is_live, is_set_up, set_level, set_up

__all__ = ["hide", "is_live", "is_set_up", "set_level", "set_up"]
