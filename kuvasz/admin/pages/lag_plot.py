"""The lag of a source over time, as a picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kuvasz.admin.pages.markup import Markup, element, joined
from kuvasz.shown import figures

#: The picture's own units.
_WIDTH: Final = 600
_HEIGHT: Final = 100

#: Seconds that it is high at least, so that a lag of nothing looks like it.
_LEAST_S: Final = 1.0


def lag_plot(lags: Sequence[tuple[float, float]]) -> Markup:
    """Return it under a heading; nothing while there is nothing to draw.

    Args:
        lags: Unix time and seconds of lag, the oldest first.
    """
    if len(lags) < 2:
        return Markup()
    begin, end = lags[0][0], lags[-1][0]
    most = max(seconds for _, seconds in lags)
    across, up = _WIDTH / max(end - begin, 1e-9), (_HEIGHT - 6) / max(most, _LEAST_S)
    points = " ".join(f"{(at - begin) * across:.1f},{_HEIGHT - 1 - seconds * up:.1f}" for at, seconds in lags)
    span = figures.seconds(end - begin)
    told = f"lag of the last {span}, at most {figures.seconds(most)}"
    area = Markup(f'<polygon class="area" points="0,{_HEIGHT} {points} {_WIDTH},{_HEIGHT}"></polygon>')
    line = Markup(f'<polyline class="line" points="{points}"></polyline>')
    plot = element(
        "svg", area, line, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img", aria_label=told
    )
    below = element(
        "figcaption",
        element("span", f"{span} ago"),
        element("span", f"at most {figures.seconds(most)}"),
        element("span", "now"),
    )
    return joined([element("h2", "Lag"), element("figure", plot, below)])


__all__ = ["lag_plot"]
