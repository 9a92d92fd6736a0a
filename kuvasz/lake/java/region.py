"""The AWS region: Iceberg's S3 and Glue clients do not start without one, whatever the endpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kuvasz.config.model import CatalogType, Config
from kuvasz.errors import ConfigError
from kuvasz.lake.java import jars

HINT = "set AWS_REGION, or `client.region` in `lake.properties`; a store that knows no regions takes any, us-east-1"

#: Whose machines tell their region themselves.
_VENDOR = Path("/sys/class/dmi/id/board_vendor")
_AMAZON = "Amazon EC2"

_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")


def prove(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Find a region where AWS's SDK looks for one ("Default region provider chain"), and return from where it is.

    Raises:
        ConfigError: There is none, and it is needed.
    """
    if not (jars.is_on_s3(config) or config.lake.type is CatalogType.GLUE):
        return "not needed"
    if "client.region" in config.lake.properties or "client.factory" in config.lake.properties:
        return "lake.properties"
    if any("-Daws.region=" in config.spark.conf.get(name, "") for name in _JAVA_OPTIONS):
        return "spark.conf"
    if environ.get("AWS_REGION"):
        return "AWS_REGION"
    if _profile_has_one(environ):
        return "a profile"
    if _VENDOR.is_file() and _VENDOR.read_text(encoding="utf-8", errors="replace").strip() == _AMAZON:
        return "this machine"
    raise ConfigError("no AWS region is known", hint=HINT)


def _profile_has_one(environ: Mapping[str, str]) -> bool:
    """Return whether the files of profiles name any region; which profile counts is the SDK's to say."""
    homes = Path.home() / ".aws"
    files = (
        environ.get("AWS_CONFIG_FILE") or homes / "config",
        environ.get("AWS_SHARED_CREDENTIALS_FILE") or homes / "credentials",
    )
    texts = (Path(file).read_text(encoding="utf-8", errors="replace") for file in files if Path(file).is_file())
    return any(line.partition("=")[0].strip() == "region" for text in texts for line in text.splitlines())


__all__ = ["HINT", "prove"]
