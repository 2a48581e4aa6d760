"""The two pages of a note."""

from datetime import datetime

from bigtrk.records.run_folder import Run
from bigtrk.reports.headlines import newest_evaluation
from bigtrk.reports.note.cost_page import cost_page
from bigtrk.reports.note.physics_page import physics_page
from bigtrk.reports.note.sheet import Sheet
from bigtrk.reports.note.training_page import training_page
from bigtrk.reports.scaling import compare


def make_pages(run: Run, title: str, date: datetime | None) -> list[Sheet]:
    """Makes the pages. date: of the newest that they tell, if it is known."""
    scaling, newest = compare([run]), newest_evaluation(run)
    second = physics_page(newest) if newest else cost_page(run, scaling)
    pages = [training_page(run, title, scaling), second]
    for number, page in enumerate(pages, start=1):
        dated = f"{date:%Y-%m-%d %H:%M} {date.tzname()} · " if date else ""
        page.foot(title, f"{dated}page {number} of {len(pages)}")
    return pages
