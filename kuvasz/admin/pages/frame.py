"""What every page has around what it shows: one style, one script, ways to other pages, nothing from outside. Pure.

A page is whole without its script. With it, what the page shows is exchanged every ten seconds where it stands, and a
token is kept until the window is closed.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from kuvasz import __version__
from kuvasz.admin.pages.markup import Markup, element, escaped, joined, link

#: Each colour has 4.5:1 and more on `--ground` and on `--raised` (WCAG 2.2, 1.4.3): a test holds them to it.
STYLE: Final = """
:root { color-scheme: light dark;
  --ground: #ffffff; --raised: #f6f7f9; --line: #dde1e6; --text: #1b2027; --quiet: #57606b; --link: #0b5cad;
  --bad: #b42318; --warn: #8a5300; --good: #1a6e36 }
@media (prefers-color-scheme: dark) { :root {
  --ground: #101317; --raised: #181c22; --line: #2b313a; --text: #dfe3e8; --quiet: #9ba5b0; --link: #7db8ff;
  --bad: #ff9389; --warn: #f0bb62; --good: #78d291 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--text); font: 14px/1.45 system-ui, sans-serif;
  font-variant-numeric: tabular-nums }
code, pre { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
a { color: var(--link); text-underline-offset: .2em; text-decoration-thickness: 1px }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
.skip { position: absolute; left: -99rem }
.skip:focus { left: 1rem; top: .5rem; background: var(--ground); z-index: 2 }
.bar { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: center; padding: .55rem 1.25rem;
  background: var(--raised); border-bottom: 1px solid var(--line) }
.bar a { color: var(--text); text-decoration: none } .bar a:hover { text-decoration: underline }
.bar .brand { font-weight: 700; letter-spacing: .01em } .bar nav { display: flex; gap: 1.1rem; margin-right: auto }
.bar [aria-current] { color: var(--link); font-weight: 600 } .bar label { display: flex; gap: .35rem }
.bar input { margin: 0; accent-color: var(--link) } [hidden] { display: none !important }
main, footer { max-width: 100rem; margin: 0 auto; padding: 1rem 1.25rem }
footer { color: var(--quiet); font-size: 12.5px }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere }
h2 { font-size: 1rem; margin: 1.75rem 0 .5rem } p { margin: .5rem 0 }
.title { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; margin: .1rem 0 .9rem }
.way { color: var(--quiet); font-size: 12.5px } .quiet { color: var(--quiet) }
.bad { color: var(--bad) } .warn { color: var(--warn) } .good { color: var(--good) }
.state { white-space: nowrap } .state::before { content: ""; display: inline-block; width: .5em; height: .5em;
  border-radius: 50%; background: currentColor; margin-right: .4em; vertical-align: .08em }
.state.bad { font-weight: 600 } .state.bad::before { border-radius: 0 }
.notes { border: 1px solid var(--line); border-left: 3px solid var(--bad); border-radius: 4px; margin: 0 0 1rem;
  padding: .5rem .9rem } .notes p { margin: .15rem 0 }
.tiles { display: flex; flex-wrap: wrap; margin: 0; border: 1px solid var(--line); border-radius: 6px;
  background: var(--line); gap: 1px; overflow: hidden }
.tiles div { flex: 1 1 8.4rem; background: var(--ground); padding: .55rem .9rem }
.tiles dt { color: var(--quiet); font-size: 12px } .tiles dd { margin: 0; font-size: 1.1rem; line-height: 1.35 }
small { display: block; font-size: 12px; color: var(--quiet) }
.tools { display: flex; flex-wrap: wrap; gap: .4rem 1.5rem; align-items: center; justify-content: space-between;
  margin: 0 0 .4rem } .tools form, .tools nav, .tools label { display: flex; gap: .5rem; align-items: center }
input[type=search], input[type=password], button, .do { font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--quiet); border-radius: 4px;
  padding: .15rem .5rem; min-height: 1.75rem }
button, .do { cursor: pointer; background: var(--raised) } button:hover, .do:hover { border-color: var(--text) }
.do { display: inline-block; font-size: 12.5px; min-height: 0; padding: .05rem .45rem; text-decoration: none;
  color: var(--text); border-color: var(--line) } .acts { display: flex; flex-wrap: wrap; gap: .3rem }
td .acts { flex-wrap: nowrap }
.wide { position: relative; overflow-x: auto; border: 1px solid var(--line); border-radius: 6px }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; vertical-align: top; padding: .32rem .8rem; border-top: 1px solid var(--line) }
thead th { border-top: 0; background: var(--raised); color: var(--quiet); font-size: 12px; font-weight: 600;
  white-space: nowrap } tbody tr:hover { background: var(--raised) }
.number { text-align: right; white-space: nowrap } .name { white-space: nowrap } .none { color: var(--quiet) }
td code { overflow-wrap: normal; white-space: nowrap } .grow { min-width: 18rem }
progress { width: 5rem; height: .5rem; accent-color: var(--link); vertical-align: .1em }
figure { margin: 0 }
figcaption { color: var(--quiet); font-size: 12px; display: flex; justify-content: space-between }
svg { display: block; width: 100%; height: 7rem; border: 1px solid var(--line); border-radius: 6px; margin: .2rem 0 }
.line { fill: none; stroke: var(--link); stroke-width: 1.5; vector-effect: non-scaling-stroke }
.area { fill: var(--link); opacity: .14 }
.card { max-width: 44rem; border: 1px solid var(--line); border-radius: 6px; padding: 1rem 1.25rem }
.card label { display: flex; gap: .6rem; align-items: center; margin: .75rem 0 }
pre { overflow: auto; margin: .5rem 0 }
.card .do { padding: .25rem .6rem }
.strong { background: var(--link); border-color: var(--link); color: var(--ground); font-weight: 600 }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
.piece { white-space: nowrap }
@media (max-width: 64rem) { th, td { padding: .3rem .5rem } .grow { min-width: 11rem } }
@media (max-width: 48rem) {
  .bar, main, footer { padding-left: .9rem; padding-right: .9rem }
  .tools form, .tools label { flex: 1 } .tools input { flex: 1; min-width: 0 }
  .wide { border: 0; overflow: visible }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
  table, tbody, tr, td { display: block } tr { border: 1px solid var(--line); border-radius: 6px;
    padding: .45rem .8rem; margin-bottom: .5rem } tbody tr:hover { background: none }
  td { border: 0; padding: .12rem 0 .12rem 7.5rem; position: relative; min-height: 1.6em }
  td::before { content: attr(data-label); position: absolute; left: 0; width: 7rem; color: var(--quiet) }
  td:first-child { padding-left: 0; font-weight: 600 }
  td:first-child::before { content: none }
  .number { text-align: left } .none, td:empty { display: none } .name { white-space: normal } .grow { min-width: 0 }
  td code { overflow-wrap: anywhere; white-space: normal }
}
"""

SCRIPT: Final = """
const live = document.getElementById('live'), told = document.getElementById('told'), kept = sessionStorage;
const token = document.getElementById('token');
if (document.querySelector('[data-forget]')) kept.removeItem('token');
if (token) {
  token.value = kept.getItem('token') || '';
  token.form.addEventListener('submit', () => kept.setItem('token', token.value));
}
async function renew() {
  const main = document.querySelector('main'), at = document.activeElement;
  const isBusy = at && main.contains(at) && at.matches('input, button') || !getSelection().isCollapsed;
  if (document.hidden || !live.checked || isBusy) return;
  try {
    const answer = await fetch(location.href, {cache: 'no-store'});
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const fresh = document.adoptNode(page.querySelector('main'));
    const alike = main => [...main.querySelectorAll('a')].filter(one => at && one.href === at.href);
    const place = alike(main).indexOf(at), scrolled = [...main.querySelectorAll('.wide')].map(one => one.scrollLeft);
    main.replaceWith(fresh);
    fresh.querySelectorAll('.wide').forEach((one, number) => { one.scrollLeft = scrolled[number] || 0; });
    if (place >= 0 && alike(fresh)[place]) alike(fresh)[place].focus({preventScroll: true});
    document.getElementById('at').textContent = page.getElementById('at').textContent;
    told.textContent = '';
  } catch (error) { if (!told.textContent) told.textContent = 'kuvasz does not answer: this is how it was'; }
}
if (live) {
  live.checked = kept.getItem('live') !== 'no';
  live.addEventListener('change', () => kept.setItem('live', live.checked ? 'yes' : 'no'));
  live.parentElement.hidden = false;
  setInterval(renew, 10000);
}
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
        "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin",
    }  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = {**headers_of(STYLE, SCRIPT), "Cache-Control": "no-store"}


def document(title: str, *body: object, at: str | None = None, here: str | None = None) -> str:
    """Return a page.

    Args:
        title: The name of its window.
        body: What it shows.
        at: The moment that it shows; None: it stays as it is.
        here: Its path, if it is one of those that every page leads to.
    """
    ways = (link(to, name, aria_current="page" if to == here else None) for to, name in _ELSEWHERE)
    live = element("label", Markup('<input id="live" type="checkbox" checked>'), "live", hidden=True)
    bar = element(
        "header", link("/", "kuvasz", class_="brand", aria_label="kuvasz: the fleet"),
        element("nav", *ways, aria_label="pages"),
        element("span", id="told", role="status", class_="bad"),
        *([] if at is None else [element("span", at, id="at", class_="quiet"), live]),
        class_="bar",
    )  # fmt: skip
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{STYLE}</style></head>"
    )
    skip = link("#main", "to what it shows", class_="skip")
    main = element("main", *body, id="main", tabindex="-1")
    foot = element("footer", f"kuvasz {__version__}; times are UTC")
    return f"{head}<body>{joined([skip, bar, main, foot])}<script>{SCRIPT}</script></body></html>\n"


def heading(name: object, *beside: object, within: object = None) -> Markup:
    """Return the head of what a page shows.

    Args:
        name: What it is of.
        beside: How that stands.
        within: The way to it.
    """
    way = Markup() if within is None else element("nav", within, aria_label="the way here", class_="way")
    return joined([way, element("div", element("h1", name), *beside, class_="title")])


__all__ = ["HEADERS", "SCRIPT", "STYLE", "document", "headers_of", "heading"]
