"""A page of paper, A4, that is filled from the top. Lengths are in points."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from bigtrk.reports.elements.charts import Plot
from bigtrk.reports.elements.first_screen import Headline
from bigtrk.reports.note.axes import DIM, LINE, STRIPE, TEXT, draw
from bigtrk.reports.note.letters import cut, width, wrapped

WIDTH, HEIGHT, MARGIN = 595.28, 841.89, 45.0
ROOM = WIDTH - 2 * MARGIN
LEADING, ASCENT = 1.35, 0.95  # of a line, in sizes of its letters
PLAIN = 8.5
COLUMNS, GAP = 2, 12.0  # of plots
LEFT, RIGHT, ABOVE, BELOW = 34.0, 4.0, 13.0, 26.0  # around the axes of a plot
NUMBERS = 4  # in a row
PLOTS = 300.0  # height of four
LABELS = 75.0  # width of the labels of facts


class Sheet:
    """A page, and the place `y` below its top that it is filled to."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        self.y = MARGIN

    @property
    def left(self) -> float:
        """Returns the height that is left, above the margin and the line there."""
        return HEIGHT - MARGIN - PLAIN - self.y

    def put(
        self,
        text: str,
        x: float,
        y: float,
        size: float = PLAIN,
        bold: bool = False,
        colour: str = TEXT,
        to_right: bool = False,
    ) -> None:
        """Puts printed text at `x` from the left (to_right: ending there), its top at `y`."""
        self.figure.text(
            *self._corner(x, y + ASCENT * size),
            text,
            fontsize=size,
            fontweight="bold" if bold else "normal",
            color=colour,
            ha="right" if to_right else "left",
            va="baseline",
        )

    def rule(self, y: float) -> None:
        """Draws a thin line across the page."""
        ends = (MARGIN / WIDTH, 1 - MARGIN / WIDTH)
        height = 1 - y / HEIGHT
        line = Line2D(ends, (height, height), linewidth=0.6, color=LINE)
        line.set_transform(self.figure.transFigure)
        self.figure.add_artist(line)

    def space(self, height: float) -> None:
        self.y += height

    def paragraph(
        self,
        text: str,
        size: float = PLAIN,
        bold: bool = False,
        colour: str = TEXT,
        most: int | None = None,
    ) -> None:
        """Adds text in at most so many lines."""
        for line in wrapped(text, ROOM, size, bold, most):
            self.put(line, MARGIN, self.y, size, bold, colour)
            self.y += LEADING * size

    def heading(self, text: str, size: float = 10) -> None:
        """Adds a line in bold letters."""
        self.paragraph(text, size, bold=True, most=1)
        self.y += 2

    def numbers(self, numbers: Sequence[Headline]) -> None:
        """Adds numbers that count, large, with what they are above and their intervals below."""
        across = (ROOM - (NUMBERS - 1) * GAP) / NUMBERS
        for place, number in enumerate(numbers):
            row, column = divmod(place, NUMBERS)
            x, y = MARGIN + column * (across + GAP), self.y + row * 44
            self._stripe(x, y, across, 40)
            self.put(cut(number.label, across - 10, 7), x + 5, y + 3, 7, colour=DIM)
            self.put(cut(number.value, across - 10, 13, bold=True), x + 5, y + 12, 13, bold=True)
            self.put(cut(number.basis, across - 10, 6.5), x + 5, y + 29, 6.5, colour=DIM)
        self.y += 44 * -(-len(numbers) // NUMBERS)

    def facts(self, facts: Mapping[str, str], size: float = 7.5, most: int = 2) -> None:
        """Adds labels and texts, each in at most so many lines."""
        for label, text in facts.items():
            self.put(cut(label, LABELS - 5, size), MARGIN, self.y, size, colour=DIM)
            for line in wrapped(text, ROOM - LABELS, size, most=most):
                self.put(line, MARGIN + LABELS, self.y, size)
                self.y += LEADING * size

    def plots(self, plots: Sequence[Plot], height: float) -> None:
        """Adds plots side by side and below each other, together `height` high."""
        rows = -(-len(plots) // COLUMNS)
        across = (ROOM - (COLUMNS - 1) * GAP) / COLUMNS
        for place, plot in enumerate(plots):
            row, column = divmod(place, COLUMNS)
            x, y = MARGIN + column * (across + GAP), self.y + row * height / rows
            self.put(cut(plot.title, across, PLAIN), x, y, PLAIN)
            inner = (across - LEFT - RIGHT, height / rows - ABOVE - BELOW)
            corner = self._corner(x + LEFT, y + ABOVE + inner[1])
            box = (*corner, inner[0] / WIDTH, inner[1] / HEIGHT)
            draw(self.figure.add_axes(box), plot)
        self.y += height if plots else 0

    def foot(self, left: str, right: str) -> None:
        """Adds the line below the margin."""
        y = HEIGHT - MARGIN + 4
        self.rule(y - 3)
        room = ROOM - width(right, 7) - 10
        self.put(cut(left, room, 7), MARGIN, y, 7, colour=DIM)
        self.put(right, WIDTH - MARGIN, y, 7, colour=DIM, to_right=True)

    @staticmethod
    def _corner(x: float, y: float) -> tuple[float, float]:
        """Returns a point as matplotlib counts: in shares of the page, from its foot."""
        return x / WIDTH, 1 - y / HEIGHT

    def _stripe(self, x: float, y: float, across: float, height: float) -> None:
        self.figure.add_artist(
            Rectangle(
                self._corner(x, y + height),
                across / WIDTH,
                height / HEIGHT,
                facecolor=STRIPE,
                edgecolor=LINE,
                linewidth=0.6,
                transform=self.figure.transFigure,
            )
        )
