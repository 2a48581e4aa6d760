"""`MODEL.md`, which lies beside each trained model."""

from pathlib import Path

from bigtrk.console import complain
from bigtrk.disk.files import write_atomically
from bigtrk.errors import reason
from bigtrk.records.run_folder import read_run
from bigtrk.reports.model_card.card import model_card

CARD = "MODEL.md"


def refresh_card(run: Path) -> None:
    """Writes the card of a run's model, atomically, once the run has ended; says in a line if it
    cannot, since neither a training nor an evaluation is worth less without it.
    """
    try:
        read = read_run(run)
        if read.record.ended is not None:
            text = model_card(read)
            write_atomically(run / CARD, lambda path: path.write_text(text, "utf-8"))
    except (OSError, ValueError) as error:
        complain(f"{run / CARD}: is not written ({reason(error)})")
