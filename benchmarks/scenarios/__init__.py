"""The scenarios, one kind per file; `benchmarks.registry` names them."""

from __future__ import annotations
