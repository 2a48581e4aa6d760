"""Small line and bar plots as inline SVG; colours are the classes `s0`, `s1` ... of `page.html`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 28, 38
BAR, BAR_GAP, BAR_LABEL, BAR_WIDTH = 18, 8, 120, 560
MOST_LETTERS = 17
COLOURS = 8
MOST_POINTS = 200
MOST_DOTS = 20
LOG_ROOM = 1.2


@dataclass(frozen=True)
class Line:
    """A named line through points (x, y); the points whose y is not finite are left out.

    errors: (x, lowest y, highest y) of bars. A `guide` is drawn dashed and without a colour of its
    own, a `dashed` line in its colour and without dots. colour: a number; without it the line's
    place among the others.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    guide: bool = False
    errors: tuple[tuple[float, float, float], ...] = ()
    dashed: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Axis:
    """Maps values in [low, high] to pixels in [start, end], with ticks at round values; `log`: by
    their logarithms, and low is above 0.
    """

    low: float
    high: float
    start: float
    end: float
    whole: bool = False
    log: bool = False

    def pixel(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Lists four to eight multiples of 1, 2 or 5 times a power of ten; if `log`, all of them
        in the range, or both ends.
        """
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            return inside or [self.low, self.high]
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (5, 2, 1) if power * factor <= raw)
        step = max(step, 1.0) if self.whole else step
        slack = 1e-9 * (self.high - self.low)
        first = math.ceil((self.low - slack) / step)
        last = math.floor((self.high + slack) / step)
        return [index * step for index in range(first, last + 1)]


def line_plot(
    title: str, x_label: str, lines: Sequence[Line], whole: bool = True, log: bool = False
) -> str:
    """Draws `lines` as SVG, at most 200 points each (means of neighbouring ones); "" without any.

    The x axis has `whole` numbers, such as steps, epochs or ranks, or others, such as seconds;
    `log`: it shows their logarithms, and all are above 0.
    """
    drawn = [replace(line, points=thin_out(_finite(line.points))) for line in lines]
    points = [point for line in drawn for point in line.points]
    if not points:
        return ""
    x = _axis([p[0] for p in points], LEFT, WIDTH - RIGHT, margin=0.0, whole=whole)
    x = replace(x, low=x.low / LOG_ROOM, high=x.high * LOG_ROOM, log=True) if log else x
    ends = [end for line in drawn for _, *pair in line.errors for end in pair]
    y = _axis([*(p[1] for p in points), *ends], HEIGHT - BOTTOM, TOP, margin=0.05, whole=False)
    curves = "".join(_curve(line, index, x, y) for index, line in enumerate(drawn))
    words = (
        f'<title>{escape(title)}</title><text class="title" x="{LEFT}" y="16">{escape(title)}'
        f'</text><text class="label" x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}">'
        f"{escape(x_label)}</text>"
    )
    grid = "".join(_grid(x, y))
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{words}{grid}{curves}</svg>'
    )


def share_bars(bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> str:
    """Draws one stacked bar as SVG per (name, shares); shares are of 1 and named by `names`."""
    if not bars:
        return ""
    height = len(bars) * (BAR + BAR_GAP)
    rows = "".join(_bar(index, name, shares, names) for index, (name, shares) in enumerate(bars))
    width = BAR_LABEL + BAR_WIDTH
    return f'<svg class="bars" viewBox="0 0 {width} {height}" role="img">{rows}</svg>'


def thin_out(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Returns at most `MOST_POINTS` points: means over runs of neighbours of equal length."""
    size = math.ceil(len(points) / MOST_POINTS)
    if size <= 1:
        return points
    chunks = [points[start : start + size] for start in range(0, len(points), size)]
    return tuple(
        (sum(x for x, _ in chunk) / len(chunk), sum(y for _, y in chunk) / len(chunk))
        for chunk in chunks
    )


def _finite(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    return tuple(point for point in points if math.isfinite(point[1]))


def _axis(values: list[float], start: float, end: float, margin: float, whole: bool) -> Axis:
    low, high = min(values), max(values)
    alone = 0.5 if whole else abs(low) * 0.1 or 1.0
    room = (high - low) * margin if high > low else alone
    return Axis(low - room, high + room, start, end, whole)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    for value in y.ticks():
        at = f"{y.pixel(value):.1f}"
        yield f'<path class="grid" d="M{x.start:.0f} {at}H{x.end:.0f}"/>'
        yield f'<text class="y" x="{x.start - 6:.0f}" y="{at}">{_number(value, y)}</text>'
    for value in x.ticks():
        at = f"{x.pixel(value):.1f}"
        yield f'<path class="grid" d="M{at} {y.start:.0f}v4"/>'
        yield f'<text class="x" x="{at}" y="{y.start + 17:.0f}">{_number(value, x)}</text>'
    yield f'<path class="axis" d="M{x.start:.0f} {y.start:.0f}H{x.end:.0f}"/>'


def _number(value: float, axis: Axis) -> str:
    if axis.log:
        return f"{value:.3g}"
    ticks = axis.ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    # The step is 0 where ticks are closer together than numbers of 64 bits.
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    return f"{value:,.{decimals}f}"


def _curve(line: Line, index: int, x: Axis, y: Axis) -> str:
    pixels = [f"{x.pixel(a):.1f},{y.pixel(b):.1f}" for a, b in line.points]
    number = index if line.colour is None else line.colour
    colour = "guide" if line.guide else f"s{number % COLOURS}"
    colour += " dashed" if line.dashed else ""
    dots = ""
    if len(pixels) <= MOST_DOTS and not line.guide and not line.dashed:
        radius = 2.5 if len(pixels) > 1 else 4
        places = (pixel.split(",") for pixel in pixels)
        dots = "".join(f'<circle cx="{a}" cy="{b}" r="{radius}"/>' for a, b in places)
    bars = "".join(
        f'<path class="error" d="M{x.pixel(a):.1f} {y.pixel(low):.1f}V{y.pixel(high):.1f}"/>'
        for a, low, high in line.errors
    )
    name = f"<title>{escape(line.name)}</title>"
    return f'<g class="{colour}">{name}<polyline points="{" ".join(pixels)}"/>{bars}{dots}</g>'


def _bar(row: int, name: str, shares: Sequence[float], names: Sequence[str]) -> str:
    top = row * (BAR + BAR_GAP) + BAR_GAP / 2
    middle = top + BAR / 2
    parts = [
        f'<text class="y" x="{BAR_LABEL - 8}" y="{middle:.1f}">{escape(_shortened(name))}</text>'
    ]
    left = float(BAR_LABEL)
    for index, (share, what) in enumerate(zip(shares, names, strict=True)):
        width = share * BAR_WIDTH
        parts.append(
            f'<rect class="s{index % COLOURS}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{width:.1f}" height="{BAR}">'
            f"<title>{escape(what)} {100 * share:.1f} %</title></rect>"
        )
        left += width
    return "".join(parts)


def _shortened(name: str) -> str:
    """Returns the end of a long name, which tells runs apart."""
    return name if len(name) <= MOST_LETTERS else f"…{name[1 - MOST_LETTERS :]}"
