"""An open run: a job with the parts of its training, and a folder that it alone writes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bigtrk.disk.folder_lock import FolderLock
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.watchdog import listening, records_in
from bigtrk.tracing import traced
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.resume import find_checkpoint
from bigtrk.training.guards import StopRequest
from bigtrk.training.job import Job
from bigtrk.training.monitoring.announce import stall_notes
from bigtrk.training.parts import Parts, make_parts
from bigtrk.training.run_folder import FLIGHT, hold
from bigtrk.training.run_writer import RunWriter


@dataclass(frozen=True)
class Run:
    """A run whose folder this job holds. found: the checkpoint to go on from, if there is one."""

    job: Job
    parts: Parts
    folder: Path
    found: Found | None
    writer: RunWriter
    checkpoints: Checkpointer
    stop: StopRequest


@contextmanager
def open_run(job: Job) -> Iterator[Run]:
    """Makes the parts of a job's training, and holds the folder of its run, new or resumed, while
    the block runs. Collective, as are the calls marked so.

    Raises:
        InputError: the run folder is taken, another process writes there, there is nothing to
            resume, or a logger does not open; or as of `make_parts`.
    """
    stop = StopRequest(job.ranks)
    # Signals are requests also while it is built: one that ended the process would leave the lock.
    with stop.listening(), FolderLock() as lock, ExitStack() as opened:
        found = _checkpoint_of(job, lock)  # collective
        parts = make_parts(job, found)  # collective
        writer = RunWriter(job, parts, lock, opened)
        folder = writer.open_folder(found)  # collective
        config = writer.record.config
        description = RunDescription(job.events.training_digest, parts.engine_name, config)
        with (
            listening(stall_notes(job.ranks, folder, lock)),
            records_in(folder / FLIGHT),
            Checkpointer(folder, parts.engine, description, lock.check, parts.averages) as saved,
        ):
            yield Run(job, parts, folder, found, writer, saved, stop)


def _checkpoint_of(job: Job, lock: FolderLock) -> Found | None:
    """Holds the folder of a run to resume, and finds its checkpoint. Collective."""
    if job.resume is None:
        return None
    on_first_rank(hold, lock, job.resume)
    with traced("finding the checkpoint"):
        return find_checkpoint(job.configuration, job.ranks, job.events, job.resume)
