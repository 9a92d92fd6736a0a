"""What pages are made of: elements whose texts are escaped, one style, one script, nothing from outside. Pure."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from typing import Final

from kuvasz import __version__

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8885; --bad: #b3261e; --warn: #8a5a00; --good: #1b6e3c }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --warn: #ffcc66; --good: #7bd88f } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 84rem; margin: 0 auto; padding: 1rem }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere }
header, nav, form { display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; align-items: baseline }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.1rem; margin: 1.75rem 0 .5rem }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0 }
dl.tiles div { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem }
dl.tiles dt { opacity: .75; font-size: .85rem } dl.tiles dd { margin: 0; font-size: 1.2rem }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line) }
th { white-space: nowrap } td.number, th.number { text-align: right; white-space: nowrap; padding-right: 1.6rem }
.bad { color: var(--bad); font-weight: 600 } .warn { color: var(--warn) } .good { color: var(--good) }
.hint { opacity: .8 } button { font: inherit; margin: 0 .25rem .25rem 0 } input { font: inherit }
svg { width: 100%; height: 6rem; border: 1px solid var(--line); border-radius: 6px }
svg polyline { fill: none; stroke: currentColor; stroke-width: 1.5; vector-effect: non-scaling-stroke }
#said { white-space: pre-wrap }
a:focus-visible, button:focus-visible, input:focus-visible { outline: 3px solid Highlight }
"""

#: Without it a page shows all that it does, but for the buttons, and comes again by itself all the same.
_SCRIPT: Final = """
const said = document.getElementById('said'), field = document.getElementById('token');
field.value = sessionStorage.getItem('token') || '';
field.addEventListener('change', () => sessionStorage.setItem('token', field.value));
for (const one of document.querySelectorAll('[hidden]')) one.hidden = false;
document.addEventListener('click', async event => {
  const button = event.target.closest('button[data-path]');
  if (!button) return;
  if (!field.value) { said.textContent = 'a token is needed: see above'; field.focus(); return; }
  if (!confirm(button.title + '?')) return;
  said.textContent = '…';
  try {
    const answer = await fetch(button.dataset.path, {
      method: 'POST', body: button.dataset.body,
      headers: {'Authorization': 'Bearer ' + field.value, 'Content-Type': 'application/json'},
    });
    const told = await answer.json();
    said.textContent = answer.ok ? 'done: ' + button.title : told.error + (told.hint ? '\\nhint: ' + told.hint : '');
  } catch (error) { said.textContent = String(error); }
});
setInterval(() => {
  const busy = document.activeElement && document.activeElement.matches('input, button, a');
  if (document.visibilityState === 'visible' && !busy && !said.textContent) location.reload();
}, 10000);
"""


#: What else the server has.
_ELSEWHERE: Final = (("/", "fleet"), ("/api/docs", "API"), ("/metrics", "metrics"), ("/status", "status"))


def headers_of(style: str, script: str | None = None) -> dict[str, str]:
    """Return the headers of a page that brings a style, and perhaps a script, which may ask this server.

    Both are named by their hashes, so that no other counts, whatever might get into the page.
    """
    own = "'none'" if script is None else "'self'"
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action {own}; frame-ancestors 'none'; style-src {_hash(style)}"
    )
    if script is not None:
        policy += f"; connect-src 'self'; script-src {_hash(script)}"
    return {
        "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"
    }  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = {**headers_of(_STYLE, _SCRIPT), "Cache-Control": "no-store"}


class Markup(str):
    """A piece of a page: it is not escaped once more."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Return a value as a page shows it."""
    return value if isinstance(value, Markup) else Markup(html.escape("" if value is None else str(value)))


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; ``class_`` is the attribute class, ``data_body`` is data-body.

    An attribute that is None or False is left out, one that is True has no value.
    """
    given = ""
    for key, value in attributes.items():
        called = key.rstrip("_").replace("_", "-")
        if value is True:
            given += f" {called}"
        elif value is not None and value is not False:
            given += f' {called}="{escaped(str(value))}"'
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return pieces one after another."""
    return Markup("".join(escaped(part) for part in parts))


def tiles(facts: Iterable[tuple[str, object]]) -> Markup:
    """Return facts with their names, side by side."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *pairs, class_="tiles")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], numbers: frozenset[int]) -> Markup:
    """Return a table; the columns with these numbers are set to the right."""

    def line(name: str, cells: Sequence[object]) -> Markup:
        scope = "col" if name == "th" else None
        made = (
            element(name, cell, class_="number" if at in numbers else None, scope=scope)
            for at, cell in enumerate(cells)
        )
        return element("tr", *made)

    body = element("tbody", *(line("td", row) for row in rows))
    whole = element("table", element("thead", line("th", head)), body, aria_label=caption)
    return element("div", whole, class_="wide")


def link(to: str, shown: object) -> Markup:
    """Return a link within the server."""
    return element("a", shown, href=to)


def button(verb: str, title: str, body: str) -> Markup:
    """Return what has the API do something, for who has a token."""
    return element("button", verb, type="button", hidden=True, title=title, data_path=f"/api/{verb}", data_body=body)


def document(title: str, *body: object) -> str:
    """Return a page."""
    token = element(
        "form",
        element("label", "token ", Markup('<input id="token" type="password" autocomplete="off">')),
        element(
            "span",
            "of ",
            element("code", "server.tokens"),
            ", or of ",
            element("code", "server.json"),
            " in the state folder, for the buttons",
        ),
        hidden=True,
    )
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<noscript><meta http-equiv="refresh" content="30"></noscript>'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head>"
    )
    foot = element(
        "footer",
        element("nav", f"kuvasz {__version__}", *(link(to, name) for to, name in _ELSEWHERE)),
    )
    said = element("p", id="said", role="status")
    return f"{head}<body>{joined(body)}{said}{token}{foot}<script>{_SCRIPT}</script></body></html>\n"


__all__ = [
    "HEADERS",
    "Markup",
    "button",
    "document",
    "element",
    "escaped",
    "headers_of",
    "joined",
    "link",
    "table",
    "tiles",
]
