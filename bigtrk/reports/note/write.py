"""Two pages of paper on a run, for a note: a PDF with its text as text."""

from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from bigtrk import __version__
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, printable
from bigtrk.records.run_folder import Run


def write_pdf(run: Run, path: Path) -> None:
    """Writes two pages on a run, A4, to `path`, atomically: what was trained and how well; then
    physics of its newest evaluation, or what the training took. The same run gives the same bytes.

    Raises:
        InputError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise InputError("matplotlib is not installed; pip install 'bigtrk[pdf]'")
    # Without this page nobody waits for its import.
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages

    from bigtrk.reports.note.pages import make_pages

    title, date = f"Run {run.folder.resolve().name}", _newest_date(run)
    metadata = {
        "Title": printable(title),
        "Creator": f"bigtrk {__version__}",
        "CreationDate": date,
    }

    def write(temporary: Path) -> None:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # whatever the user's own are
            matplotlib.rcParams["pdf.fonttype"] = 42  # TrueType: text can be searched and copied
            matplotlib.rcParams["text.parse_math"] = False  # names may hold dollars
            with PdfPages(temporary, metadata=metadata) as pages:
                for page in make_pages(run, title, date):
                    pages.savefig(page.figure)

    write_atomically(path, write)


def _newest_date(run: Run) -> datetime | None:
    """Returns when the newest of what is told happened; None where that is not known."""
    known = [evaluation.made for evaluation in run.evaluations]
    known += [run.record.finished] if run.record.finished else []
    with suppress(ValueError):  # text from anywhere
        started = datetime.fromisoformat(run.record.started or "")
        known += [started] if started.tzinfo else []
    return max(known).replace(microsecond=0) if known else None
