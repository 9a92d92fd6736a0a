"""The configuration: one YAML file, the environment and flags in; a frozen, checked `Config` out.

What enters is written by people, so everything wrong is found at once and named with its place. What leaves is
safe to show: passwords are hidden in every ``repr``, error and log record (see `kuvasz.config.secrets`).
"""

from __future__ import annotations
