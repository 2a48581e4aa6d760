"""The first screen of a page: what was trained on what, the numbers that count, their limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bigtrk.reports.elements import figures
from bigtrk.reports.elements.estimates import wilson
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.elements.page_parts import table_section

OF = "; of "
INTERVALS = "Ranges behind shares: Wilson's binomial interval at one standard deviation (68.3 %)."


@dataclass(frozen=True)
class Headline:
    """A number that counts: what it is, its value, and its interval or what it rests on."""

    label: str
    value: str
    basis: str = ""


def ratio(label: str, share: float | None, whole: int | None) -> list[Headline]:
    """Makes a headline of a share of so many, with its binomial interval; none of nothing."""
    if share is None:
        return []
    value = f"{figures.percent(share, 1)} %"
    if not whole or not 0 <= share <= 1:
        return [Headline(label, value)]
    low, high = wilson(share, whole)
    return [
        Headline(label, value, f"{100 * low:.1f} to {100 * high:.1f}{OF}{figures.count(whole)}")
    ]


def first_screen(
    lead: str, numbers: Sequence[tuple[str, Sequence[Headline]]], verdict: Sequence[str]
) -> str:
    """Makes it of a sentence, the numbers of each run by its name, and a sentence per limit; those
    of one run are shown large, those of several side by side.
    """
    known = [(name, own) for name, own in numbers if own]
    shown = "".join(map(_large, known[0][1])) if len(known) == 1 else ""
    large = f'<div class="numbers">{shown}</div>' if shown else ""
    told = "".join(f"<p>{escape(each)}</p>" for each in verdict)
    has_shares = any(OF in one.basis for _, own in known for one in own)
    return (
        f'<p class="lead">{escape(lead)}</p>{large}'
        + (table_section(_side_by_side(known)) if len(known) > 1 else "")
        + (f"<p>{escape(INTERVALS)}</p>" if has_shares else "")
        + (f'<div class="verdict">{told}</div>' if told else "")
    )


def _large(number: Headline) -> str:
    label, value, basis = map(escape, (number.label, number.value, number.basis))
    return f"<div><span>{label}</span><b>{value}</b><span>{basis}</span></div>"


def _side_by_side(numbers: Sequence[tuple[str, Sequence[Headline]]]) -> Table:
    labels = [*dict.fromkeys(one.label for _, own in numbers for one in own)]
    rows = []
    for name, own in numbers:
        by_label = {one.label: one for one in own}
        cells = [by_label.get(label, Headline(label, figures.DASH)) for label in labels]
        rows.append((name, *(_with_basis(cell) for cell in cells)))
    return Table("Side by side", ("run", *labels), tuple(rows))


def _with_basis(number: Headline) -> str:
    interval = number.basis.partition(";")[0]
    return f"{number.value} ({interval})" if interval else number.value
