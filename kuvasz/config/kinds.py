"""The kinds of values an option may have: each checks, says what it wants, and describes itself to JSON Schema.

Messages complete a sentence that begins with the option's name. A value comes from YAML (typed) or from the
environment and flags (always text), so numbers are taken from text too; text is never made of numbers, because
``sid: 01`` has lost its zero by then.
"""

from __future__ import annotations

import re
import urllib.parse
import zoneinfo
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

from kuvasz import lsn
from kuvasz.config import names, units
from kuvasz.config.secrets import SecretText, SecretUrl

if TYPE_CHECKING:
    from collections.abc import Callable

#: In the file any value may be a ``${…}`` instead, which a JSON Schema must not call wrong.
_REFERENCE = {"type": "string", "pattern": r"\$\{"}

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_MAX_PRECISION = 38  #: of an Iceberg decimal (Iceberg spec, "Primitive Types")

_COLUMN = r"(?:`(?:[^`]|``)+`|[^`(),]+)"
_TRANSFORMS = {"years": 0, "months": 0, "days": 0, "hours": 0, "bucket": 1, "truncate": 1}
_PARTITION = re.compile(rf"(?:(?P<transform>\w+)\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<inner>{_COLUMN})\)|{_COLUMN})")
_ORDERING = re.compile(
    r"(?P<term>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE
)

#: How a text is hidden; what stands behind the colon names a key of its own.
_MASK = re.compile(r"redact|hmac(:\w[\w.-]{0,127})?", re.ASCII)

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):(?P<port>\d{1,5})")
#: What a header can carry, too long to be guessed.
_TOKEN = re.compile(r"[!-~]{16,}")
_SCHEMES = ("postgresql", "postgres")
_URL_SHAPE = "postgresql://user@host:5432/database"


def _whole(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        msg = f"must be a whole number, not {_yaml(value)}"
        raise ValueError(msg)
    return value


def _text(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        msg = "must not be empty"
        raise ValueError(msg)
    return value


def _texts(value: object) -> object:
    """Make texts of a mapping's scalars: Spark and Iceberg properties are texts, YAML's ``8`` and ``true`` not."""
    if not isinstance(value, dict):
        return {} if value is None else value
    return {name: _written(entry) for name, entry in value.items()}


def _written(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return getattr(value, "text", None) or str(value)
    return value


def _yaml(value: object) -> str:
    return "nothing" if value is None else str(_written(value)) if isinstance(value, bool | float) else repr(value)


def between(low: float, high: float, render: Callable[[Any], str] = str) -> AfterValidator:
    """Return a check of bounds, both included, that names them in the option's own unit."""

    def check(value: float) -> float:
        if low <= value <= high:
            return value
        if value < low:
            msg = f"must be at least {render(low)}, not {render(value)}"
        else:
            msg = f"must be at most {render(high)}, not {render(value)}"
        raise ValueError(msg)

    return AfterValidator(check)


def durations(low: str, high: str) -> AfterValidator:
    """Return a check of a duration's bounds."""
    return between(units.parse_duration(low), units.parse_duration(high), units.render_duration)


def sizes(low: str, high: str) -> AfterValidator:
    """Return a check of a size's bounds."""
    return between(units.parse_size(low), units.parse_size(high), units.render_size)


def _format_version(value: int) -> int:
    if value not in {2, 3}:
        msg = f"must be 2 or 3, not {value}"
        raise ValueError(msg)
    return value


def _mask(value: str) -> str:
    if not _MASK.fullmatch(value):
        msg = f"must be redact, hmac, or hmac:name with letters, digits, and . _ - in the name, not {value!r}"
        raise ValueError(msg)
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        msg = f"is not a regular expression: {error.msg}{at}"
        raise ValueError(msg) from None
    return value


def day_times(value: str) -> tuple[int, int]:
    """Return the two times of the day in minutes since midnight: `22:00-05:30`.

    Raises:
        ValueError: The text is no two times.
    """
    found = re.fullmatch(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)", value.strip())
    hours = [int(part) for part in found.groups()] if found else [24, 0, 24, 0]
    if hours[0] > 23 or hours[2] > 23 or hours[1] > 59 or hours[3] > 59 or hours[:2] == hours[2:]:
        msg = f"must be two times of the day, such as 22:00-05:30, not {value!r}"
        raise ValueError(msg)
    return 60 * hours[0] + hours[1], 60 * hours[2] + hours[3]


def _day_times(value: str) -> str:
    day_times(value)
    return value.strip()


def _time_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is the last of these
        msg = f"must be a time zone that this machine knows, such as Europe/Berlin, not {value!r}"
        raise ValueError(msg) from None
    return value


def _tenants(value: str) -> str:
    groups = re.compile(_regex(value)).groups
    if groups != 1:
        msg = f"has {groups} parts in parentheses, and needs one for the sid: 'tenant_(.+)'; (?:…) is not counted"
        raise ValueError(msg)
    return value


def decimal_type(text: str) -> tuple[int, int]:
    """Return precision and scale of ``decimal(p,s)``.

    Raises:
        ValueError: It is none that Iceberg knows.
    """
    match = _DECIMAL.fullmatch(text.strip().lower())
    precision, scale = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= precision <= _MAX_PRECISION or scale > precision:
        msg = f"must be decimal(p,s) with 1 ≤ p ≤ {_MAX_PRECISION} and 0 ≤ s ≤ p, not {text!r}"
        raise ValueError(msg)
    return precision, scale


def _decimal(value: str) -> str:
    precision, scale = decimal_type(value)
    return f"decimal({precision},{scale})"


def _lake_type(value: str) -> str:
    text = value.strip().lower()
    if text == "string":
        return text
    if text.startswith("decimal"):
        return _decimal(text)
    msg = f"must be string or decimal(p,s), not {value!r}"
    raise ValueError(msg)


def _partition(value: str) -> str:
    match = _PARTITION.fullmatch(value.strip())
    transform = match["transform"] if match else None
    if match is None:
        msg = f"must be a column or a transform such as days(at) or bucket(16, id), not {value!r}"
        raise ValueError(msg)
    if transform is not None:
        _check_transform(transform, match["width"])
    return value.strip()


def _check_transform(transform: str, width: str | None) -> None:
    from kuvasz.config.problem import listed, suggestion

    needed = _TRANSFORMS.get(transform.lower())
    if needed is None:
        guess = suggestion(transform, _TRANSFORMS)
        msg = f"has the unknown transform {transform!r}{guess or f': it must be {listed(_TRANSFORMS)}'}"
        raise ValueError(msg)
    if needed != (width is not None):
        usage = f"{transform}(16, column)" if needed else f"{transform}(column)"
        msg = f"has a transform with wrong arguments: write {usage}"
        raise ValueError(msg)
    if width is not None and int(width) == 0:
        msg = f"has a {transform} of width 0: it must be at least 1"
        raise ValueError(msg)


def partition_term(text: str) -> tuple[str, int, str]:
    """Return transform (``identity`` for a mere column), width (0 without one) and column of a partition.

    Raises:
        ValueError: The text is no partition.
    """
    match = _PARTITION.fullmatch(_partition(text))
    assert match is not None
    column = match["inner"] or match[0]
    if column.startswith("`"):
        column = column[1:-1].replace("``", "`")
    return (match["transform"] or "identity").lower(), int(match["width"] or 0), column.strip()


def ordering_term(text: str) -> tuple[str, bool, bool]:
    """Return the term of an ordering, whether it descends, and whether NULLs come first.

    Raises:
        ValueError: The text is no term of an ordering.
    """
    match = _ORDERING.fullmatch(_ordering(text))
    if match is None:
        msg = f"must be a column or a transform, not {text!r}"
        raise ValueError(msg)
    descends = (match["direction"] or "").lower() == "desc"
    nulls = (match["nulls"] or ("last" if descends else "first")).lower()
    return match["term"], descends, nulls == "first"


def _ordering(value: str) -> str:
    match = _ORDERING.fullmatch(value.strip())
    if match is not None:
        _partition(match["term"])
    return value.strip()


def _target(value: str) -> str:
    try:
        parts = names.split_name(value)
    except ValueError:
        parts = ("",)
    if any(not part.strip() or re.search(r"[/\\`\x00-\x1f]", part) for part in parts):
        msg = f"must be a table name in the lake, or namespace.name, without / \\ ` and line breaks, not {value!r}"
        raise ValueError(msg)
    return value


def _route_value(value: object) -> object:
    if isinstance(value, bool | int):
        return value
    text = _text(value)
    if not isinstance(text, str) or not re.fullmatch(r"[^'\\/`\x00-\x1f]+", text) or not text.strip():
        msg = f"must be a text without quotes, slashes and line breaks, a whole number, true or false, not {value!r}"
        raise ValueError(msg)
    return text


def _namespace(value: str) -> str:
    if any(re.fullmatch(r"[^\s./\\`\"'][^./\\`\"']*", part) is None for part in value.split(".")):
        msg = f"must be names separated by dots, without / \\ ` and quotes, not {value!r}"
        raise ValueError(msg)
    return value


def _off(value: object) -> object:
    """Take ``off`` for nothing; YAML has made False of it, the environment has not."""
    return None if value in ("off", False) else value


def _told_off(value: object) -> object:
    """Have ``off`` as it is written, whatever reads it: it is not the same as nothing."""
    return "off" if value is False else value


def _catalog(value: str) -> str:
    # Spark puts it into setting names (spark.sql.catalog.<name>.uri), where a dot would begin another name.
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is None:
        msg = f"must be letters, digits and _ and not begin with a digit, not {value!r}"
        raise ValueError(msg)
    return value


def _branch(value: str) -> str:
    # Spark SQL has it in a name (table.branch_<name>).
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}", value) is None or value.startswith(names.CUT_PREFIX):
        msg = f"must be letters, digits, _ and -, and not begin with cut_, as tags of cuts do, not {value!r}"
        raise ValueError(msg)
    return value


def split_address(address: str) -> tuple[str, int]:
    """Return host and port; brackets of an IPv6 address are taken off.

    Raises:
        ValueError: It is no address.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        msg = f"must be host:port such as 127.0.0.1:8000 or [::1]:8000, not {address!r}"
        raise ValueError(msg)
    return match["host"].strip("[]"), int(match["port"])


def _lsn(value: str) -> str:
    try:
        return lsn.render(lsn.parse(value))
    except ValueError as error:
        msg = f"must be an LSN as PostgreSQL prints them, such as 16/B374D848, not {value!r}"
        raise ValueError(msg) from error


def _address(value: str) -> str:
    split_address(value)
    return value


def token(value: object) -> SecretText:
    """Return a token after a look at it. Messages never quote it.

    Raises:
        ValueError: It is none, or none that nobody guesses.
        ConfigError: It cannot be had.
    """
    found = SecretText(value) if isinstance(value, str) else value
    if not isinstance(found, SecretText):
        msg = "must be a text"
        raise ValueError(msg)  # noqa: TRY004 -- pydantic translates ValueError only
    if _TOKEN.fullmatch(found.get()) is None:
        msg = "must be at least 16 letters, digits or signs without blanks, such as `openssl rand -hex 32` prints"
        raise ValueError(msg)
    return found


def _is_web_url(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_url and re.search(r"[\s\x00-\x1f]", text) is None


def _webhook(value: object) -> SecretText:
    """Check a webhook's url. Messages never quote it: many a url is a secret as a whole."""
    url = SecretText(value) if isinstance(value, str) else value
    if not isinstance(url, SecretText):
        msg = "must be a url such as https://hooks.example.com/kuvasz"
        raise ValueError(msg)  # noqa: TRY004 -- pydantic translates ValueError only
    if not _is_web_url(url.get()):
        msg = "must be a url such as https://hooks.example.com/kuvasz"
        raise ValueError(msg)
    if "@" in urllib.parse.urlsplit(url.get()).netloc:
        msg = "must not have a user or password: requests are signed with `secret`"
        raise ValueError(msg)
    return url


def _url(value: object) -> object:
    """Check a source's url. Messages never quote it: whatever is wrong with it, it holds a password."""
    url = SecretUrl(value) if isinstance(value, str) else value
    if not isinstance(url, SecretUrl):
        msg = f"must be a url such as {_URL_SHAPE}"
        raise ValueError(msg)  # noqa: TRY004 -- pydantic translates ValueError only
    scheme, separator, rest = url.get().partition("://")
    if not separator or scheme not in _SCHEMES:
        msg = f"must be a PostgreSQL url such as {_URL_SHAPE}"
        raise ValueError(msg)
    _check_authority(re.split(r"[/?]", rest)[0])
    _check_parameters(rest.partition("?")[2])
    return url


def _check_authority(authority: str) -> None:
    userinfo, _, hosts = authority.rpartition("@")
    host = r"(?:\[[^\]@]+\]|[^:@\[\]]*)(?::\d*)?"
    if "@" in userinfo or re.fullmatch(rf"{host}(?:,{host})*", hosts) is None:
        msg = (
            f"must be a url such as {_URL_SHAPE}: in user and password write @ as %40, : as %3A, / as %2F,"
            " ? as %3F and % as %25, or fill them from ${VAR}, which does it for you"
        )
        raise ValueError(msg)
    if re.search(r"%(?![0-9A-Fa-f]{2})", userinfo):
        msg = "has a % in user or password that is not followed by two hexadecimal digits: write it as %25"
        raise ValueError(msg)


def _check_parameters(query: str) -> None:
    for parameter in query.split("&") if query else ():
        name, equals, _ = parameter.partition("=")
        if not name or not equals:
            msg = "has a parameter after the '?' that is not name=value"
            raise ValueError(msg)
    duplicates = [name for name, _ in urllib.parse.parse_qsl(query, keep_blank_values=True)]
    for name in duplicates:
        if duplicates.count(name) > 1:
            msg = f"has the parameter {name!r} twice"
            raise ValueError(msg)


def or_null(schema: dict[str, Any]) -> None:
    """Let a JSON Schema take YAML's ``null`` for the word."""
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"type": "null"}]


def empty(value: object) -> object:
    """Take a key without a value for an empty mapping: ``customers:`` names a table with nothing to say of it."""
    return {} if value is None else value


def switch(value: object) -> object:
    """Take ``off`` and ``on`` for a section that says only whether it is ``enabled``."""
    if value in ("off", False):
        return {"enabled": False}
    return {} if value in ("on", True) else empty(value)


Whole: TypeAlias = Annotated[
    int, BeforeValidator(_whole), WithJsonSchema({"anyOf": [{"type": "integer"}, _REFERENCE]})
]
FormatVersion: TypeAlias = Annotated[Whole, AfterValidator(_format_version)]
Text: TypeAlias = Annotated[str, AfterValidator(_text)]
Texts: TypeAlias = Annotated[
    dict[str, str],
    BeforeValidator(_texts),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
Duration: TypeAlias = Annotated[
    float,
    BeforeValidator(units.parse_duration),
    PlainSerializer(units.render_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["500ms", "1s", "5m"]}),
]
Size: TypeAlias = Annotated[
    int,
    BeforeValidator(units.parse_size),
    PlainSerializer(units.render_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["512kB", "64MB", "1GB"]}),
]
Regex: TypeAlias = Annotated[str, AfterValidator(_text), AfterValidator(_regex)]
DayTimes: TypeAlias = Annotated[str, AfterValidator(_text), AfterValidator(_day_times)]
TimeZone: TypeAlias = Annotated[str, AfterValidator(_text), AfterValidator(_time_zone)]
Tenants: TypeAlias = Annotated[str, AfterValidator(_text), AfterValidator(_tenants)]
DecimalType: TypeAlias = Annotated[str, AfterValidator(_decimal)]
LakeType: TypeAlias = Annotated[str, AfterValidator(_lake_type)]
Partition: TypeAlias = Annotated[str, AfterValidator(_partition)]
Ordering: TypeAlias = Annotated[str, AfterValidator(_ordering)]
Mask: TypeAlias = Annotated[
    str,
    AfterValidator(_mask),
    WithJsonSchema({"anyOf": [{"enum": ["hmac", "redact"]}, {"type": "string", "pattern": "^hmac:"}, _REFERENCE]}),
]
Lsn: TypeAlias = Annotated[str, AfterValidator(_lsn)]
Target: TypeAlias = Annotated[str, AfterValidator(_target)]
RouteValue: TypeAlias = Annotated[
    bool | int | str,
    BeforeValidator(_route_value),
    WithJsonSchema({"type": ["string", "integer", "boolean"]}),
]
Namespace: TypeAlias = Annotated[str, AfterValidator(_namespace)]
OffOrNamespace: TypeAlias = Annotated[Namespace | None, BeforeValidator(_off)]
OffOrText: TypeAlias = Annotated[Text, BeforeValidator(_told_off)]
Catalog: TypeAlias = Annotated[str, AfterValidator(_catalog)]
Branch: TypeAlias = Annotated[str, AfterValidator(_branch)]
Address: TypeAlias = Annotated[str, AfterValidator(_address)]
Token: TypeAlias = Annotated[
    InstanceOf[SecretText],
    BeforeValidator(token),
    PlainSerializer(SecretText.redacted, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["${file:/run/secrets/kuvasz-ann}"]}),
]
Webhook: TypeAlias = Annotated[
    InstanceOf[SecretText],
    BeforeValidator(_webhook),
    PlainSerializer(SecretText.redacted, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["https://hooks.example.com/kuvasz"]}),
]
Url: TypeAlias = Annotated[
    InstanceOf[SecretUrl],
    BeforeValidator(_url),
    PlainSerializer(SecretUrl.redacted, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["postgresql://repl:${EU_PW}@eu1/shop?sslmode=verify-full"]}),
]
