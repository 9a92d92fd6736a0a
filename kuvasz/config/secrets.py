"""Secrets: urls whose password nobody sees, and what takes passwords out of texts and log records.

Two nets, one behind the other: values that are known to be secret are replaced wherever they turn up, and
passwords in urls and in ``password=…`` are replaced by their shape, known or not.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import os
import re
import shlex
import subprocess
import threading
import time
import traceback
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from kuvasz.errors import ConfigError

HIDDEN = "***"

#: How long a command may take, and for how long what it printed is used: many connections begin together. So does why
#: it failed: who waited for it does not wait for another 30 s behind all others.
_PATIENCE_S = 30.0
_SAID_S = 60.0
_FAILED_S = 5.0

#: Command -> when it ended, in monotonic seconds, and what it printed, or None and why it failed; and who runs it.
_SAID: dict[str, tuple[float, str | None, str]] = {}
_RUNNING: collections.defaultdict[str, threading.Lock] = collections.defaultdict(threading.Lock)

#: Words in the name of an option, a property or a variable that make its value a secret; Java reads it, too.
SECRET_NAME = re.compile(
    r"(?i)secret|passw|passphrase|pwd|(^|[^a-z])(pw|pass)([^a-z]|$)|token|credential|access[-_.]?key|private[-_.]?key"
    r"|account[-_.]?key|shared[-_.]?key|api[-_.]?key|sas[-_.]|authorization|connection[-_.]?string|jaas|encryption[-_.]?key"
    r"|(^|[-_.])(sse|psk)[-_.](.*[-_.])?key"
)

#: Last words of properties' names whose value everybody may see, also where the map has it from outside.
_PLAIN_NAME = re.compile(
    r"(^|[-_.])(uri|url|endpoint|host|port|user|username|region|warehouse|path|dir|folder|bucket|prefix|impl|name|type|size"
    r"|memory|cores|instances|enabled|version|timeout|interval)$",
    re.IGNORECASE,
)

#: ``scheme://user:password@``. The password runs to the last @ before the query, since a raw @ in it is a common
#: mistake; the host is hidden then rather than half a password shown.
_URL_PASSWORD = re.compile(r"(\b[A-Za-z][\w+.\-]*://[^\s:/?#@'\"]*):(?:[^\s?'\"]*@|[^\s'\"]*@)")

#: Parameters by which libpq is let in somewhere (manual, section 34.1.2).
_LETTING_IN = r"(?:ssl)?password|oauth_client_secret|scram_(?:client|server)_key"

#: ``password=…`` and the like in a url's query or in libpq's keyword form, quoted or not.
_PASSWORD_PARAMETER = re.compile(rf"((?:{_LETTING_IN})\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&'\",;)]+)", re.IGNORECASE)

#: A property that Java is given as an option, its value quoted or not.
_JAVA_PROPERTY = re.compile(
    r"""(?:^|[\s'"])-D(?P<name>[^\s=]+)=(?:(?P<mark>['"])(?P<quoted>.*?)(?P=mark)|(?P<value>\S*))"""
)

#: Such secrets are replaced only where they stand alone: hiding each "a" would hide the log, the password
#: ``postgres`` would take a part of every url with it, and ``shop_eu`` of a slot's name. Within urls their shape
#: gives them away.
_COMMON = re.compile(r".{1,3}|[a-z][a-z0-9_]*", re.DOTALL)

#: Characters by which secrets that begin alike are told apart, before they are tried one behind the other.
_DEPTH = 16

_RECORD_ATTRIBUTES = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime"}


@dataclasses.dataclass(frozen=True, slots=True)
class SecretPart:
    """A place in a value that is filled each time it is used: secrets are rotated under our feet.

    Args:
        name: What fills it.
        place: Where the map names it, for the error.
        is_quoted: Percent-encode what fills it, because it stands in the password or a parameter of a url.
        safe: Characters that stay as they are when it is encoded.
    """

    name: str
    place: str = dataclasses.field(default="", compare=False)
    is_quoted: bool = False
    safe: str = ""

    def read(self) -> str:
        """Return what fills it now, without the newline at its end.

        Raises:
            ConfigError: It cannot be had.
        """
        raise NotImplementedError

    def _error(self, message: str, hint: str) -> ConfigError:
        return ConfigError(f"{self.place}: {message}" if self.place else message, hint=hint)


class SecretFile(SecretPart):
    """A file's content."""

    __slots__ = ()

    @override
    def read(self) -> str:
        try:
            return _without_end(Path(self.name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            message = f"cannot read the file {self.name!r}: {_reason(error)}"
            raise self._error(message, "mount the secret there, or correct the path in ${file:…}") from None


class SecretCommand(SecretPart):
    """What a command prints, such as a token of a cloud that is good for minutes. It is run once a minute at most."""

    __slots__ = ()

    @override
    def read(self) -> str:
        with _RUNNING[self.name]:  # whoever else wants it waits for this one's
            ended, said, why = _SAID.get(self.name, (-math.inf, None, ""))
            if time.monotonic() - ended >= (_FAILED_S if said is None else _SAID_S):
                said, why = _run(self.name)
                _SAID[self.name] = time.monotonic(), said, why
        if said is None:
            message = f"the command {self.name.partition(' ')[0]!r} gives no secret: {why}"
            raise self._error(message, "see what it says by itself, and correct ${exec:…}")
        return said


class SecretText:
    """A text that is secret as a whole. `get` gives it; ``str``, ``repr`` and all built on them hide it.

    Args:
        parts: Text, and files and commands that are asked anew at each `get`.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: str | SecretPart) -> None:
        self._parts = parts

    @property
    def is_fixed(self) -> bool:
        """Whether nobody has to be asked for it."""
        return all(isinstance(part, str) for part in self._parts)

    def get(self) -> str:
        """Return the text; for using, never for showing.

        Raises:
            ConfigError: A file that holds a part of it cannot be read, or a command fails.
        """
        return "".join(part if isinstance(part, str) else _text(part) for part in self._parts)

    def redacted(self) -> str:
        """Return what logs may show of it; asks nobody."""
        return HIDDEN

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.redacted()!r})"

    @override
    def __str__(self) -> str:
        return self.redacted()

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and type(self) is type(other) and self._parts == other._parts

    @override
    def __hash__(self) -> int:
        return hash(self._parts)

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._parts


class SecretUrl(SecretText):
    """A connection url, which is shown without its password."""

    __slots__ = ()

    @override
    def redacted(self) -> str:
        return redact_url("".join(part if isinstance(part, str) else HIDDEN for part in self._parts))


class LiveTexts(Mapping[str, str]):
    """Texts by their names, some of them secret and asked for anew at each look. Pickled, it is what it has now.

    Where a file or a command gives none just now, as while it is exchanged, the last one counts.

    Args:
        fixed: All of them as they were read first.
        live: Where some of them are from.
    """

    def __init__(self, fixed: Mapping[str, str], live: Mapping[str, SecretText]) -> None:
        self.fixed = dict(fixed)
        self._known = dict(fixed)
        self._live = dict(live)

    def now(self) -> dict[str, str]:
        """Return all of them."""
        for name, one in self._live.items():
            with contextlib.suppress(ConfigError):
                self._known[name] = one.get()
        return dict(self._known)

    def over(self, others: Mapping[str, str]) -> LiveTexts:
        """Return the same with others besides, which stay as they are, and lie below them."""
        return LiveTexts({**others, **self.fixed}, self._live)

    @override
    def __getitem__(self, name: str) -> str:
        return self.now()[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    @override
    def __len__(self) -> int:
        return len(self._known)

    @override
    def __repr__(self) -> str:
        return f"LiveTexts({', '.join(self._known)})"

    __str__ = __repr__

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return dict, (self.now(),)


def is_secret_name(name: str) -> bool:
    """Say whether the value of an option, property or variable of this name must not be shown."""
    return SECRET_NAME.search(name) is not None


def is_plain_name(name: str) -> bool:
    """Say whether everybody may see a property of this name, wherever its value is from."""
    return _PLAIN_NAME.search(name) is not None and not is_secret_name(name)


def redact_url(url: str) -> str:
    """Return the url without the password in its user part and in its parameters."""
    return _PASSWORD_PARAMETER.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", url))


def redact(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without secrets.

    Args:
        text: Any text: a message, an exception's text, a url.
        known: Values that are secret wherever they stand.
    """
    return Redactor(known)(text)


def shown(name: str, value: object) -> object:
    """Return an option's value as it may be shown: mappings entry by entry, texts without passwords."""
    if isinstance(value, Mapping):
        return {key: shown(str(key), entry) for key, entry in value.items()}
    if isinstance(value, str):
        return HIDDEN if value and is_secret_name(name) else redact_url(value)
    return value


def url_secrets(url: str) -> set[str]:
    """Return the passwords in a url, as written and decoded; also of one that is not well-formed."""
    rest = url.partition("://")[2]
    front, _, query = rest.partition("?")
    # Both readings of where the password ends: a raw / or @ in it is a common mistake, and half of it is too much.
    users = [front.rpartition("@")[0], front.partition("/")[0].rpartition("@")[0]]
    found = {user.partition(":")[2] for user in users}
    for parameter in query.split("&"):
        name, _, value = parameter.partition("=")
        if re.search(_LETTING_IN, name, re.IGNORECASE):
            found.add(value)
    return {form for text in found for form in (text, urllib.parse.unquote(text)) if form}


def java_secrets(options: str) -> set[str]:
    """Return what options of Java set under the name of a secret, as ``-Daws.secretKey=…``."""
    found = _JAVA_PROPERTY.finditer(options)
    return {one["quoted"] or one["value"] for one in found if is_secret_name(one["name"])}


class Redactor:
    """Takes secrets out of texts; used for every record.

    Args:
        known: Values that are secret wherever they stand.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Hide more values from now on; those that were hidden stay so."""
        self._values |= {value for value in known if value and value != HIDDEN}
        self._known = re.compile(_any_of(self._values)) if self._values else None

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        known = self._known  # another thread may learn more meanwhile
        if known is not None:
            text = known.sub(HIDDEN, text)
        # Both shapes need one of these characters: most records have neither and pass without a search.
        return redact_url(text) if "@" in text or "=" in text else text

    def clean(self, value: object) -> object:
        """Return a value as JSON has it, without secrets in any of its texts and names."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(key)): self.clean(entry) for key, entry in value.items()}
        return [self.clean(entry) for entry in value] if isinstance(value, list | tuple) else value


class SecretFilter(logging.Filter):
    """Takes secrets out of every record: message, exception, stack and extra fields.

    Add it to *handlers*: a logger's filters do not see the records of its children (Python manual, "Logger
    Objects").
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        self._redact = Redactor(known)
        self.learn = self._redact.learn  #: hides more values from now on

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record in place; never drops one."""
        record.msg, record.args = self._redact(_message(record)), None
        if record.exc_info:
            # The traceback's text holds the exceptions' own; `exc_text` is what formatters print if it is there.
            record.exc_text = record.exc_text or "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self._redact(record.exc_text)
        if record.stack_info:
            record.stack_info = self._redact(record.stack_info)
        for name in vars(record).keys() - _RECORD_ATTRIBUTES:
            setattr(record, name, self._clean(getattr(record, name)))
        return True

    def _clean(self, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {self._clean(key): self._clean(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(entry) for entry in value]
        text = str(value)
        clean = self._redact(text)
        return value if clean == text else clean


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        # A wrong format string is a bug of ours, but one that must not show a secret or lose the record.
        return f"{record.msg} {record.args!r}"


def _text(reference: SecretPart) -> str:
    content = reference.read()
    return urllib.parse.quote(content, safe=reference.safe) if reference.is_quoted else content


def _run(command: str) -> tuple[str | None, str]:
    """Return what a command prints, and, if it gives nothing, why."""
    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_PATIENCE_S
        )
        return _without_end(done.stdout.decode()), ""
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return None, _failure(error)


def _without_end(content: str) -> str:
    return content.removesuffix("\n").removesuffix("\r")


def _any_of(values: Iterable[str]) -> str:
    """Return the pattern of any of the secrets, the longest first: one that begins with another leaves no end behind.

    One that begins with a common one may be none, but never the other way round.
    """
    by_kind: dict[bool, list[str]] = {False: [], True: []}
    for value in sorted(values, key=len, reverse=True):
        by_kind[_COMMON.fullmatch(value) is not None].append(value)
    patterns = [_ends(by_kind[False])] if by_kind[False] else []
    if by_kind[True]:
        patterns.append(rf"(?<!\w)(?:{_ends(by_kind[True])})(?!\w)")
    return "|".join(patterns)


def _ends(values: Sequence[str], begin: int = 0, depth: int = 0) -> str:
    """Return the pattern of what follows the first characters that values have in common.

    One behind the other, each of a thousand sources' passwords would be tried at each character of a text.
    """
    same = os.path.commonprefix([value[begin:] for value in values])  # noqa: RUF071 (by characters)
    begin += len(same)
    if len(values) == 1 or depth == _DEPTH:
        ends = [re.escape(value[begin:]) for value in values]
    else:
        of_next: dict[str, list[str]] = {}
        for value in values:
            of_next.setdefault(value[begin : begin + 1], []).append(value)
        ends = [_ends(of_next[char], begin, depth + 1) for char in sorted(of_next, reverse=True)]  # the shortest last
    return re.escape(same) + (ends[0] if len(ends) == 1 else f"(?:{'|'.join(ends)})")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "not UTF-8 text" if isinstance(error, UnicodeError) else "not a path"


def _failure(error: Exception) -> str:
    """Say why a command failed, and nothing of what it printed for us."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"it ended with {error.returncode}" + (f": {lines[-1][:200]}" if lines else "")
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {_PATIENCE_S:g} s"
    if isinstance(error, UnicodeError):
        return "it printed no UTF-8 text"
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else "it is no command"
