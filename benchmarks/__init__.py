"""Measurements of the whole product, always as ratios to a reference taken in the same run."""

from __future__ import annotations
