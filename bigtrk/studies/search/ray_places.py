"""Places of a Ray cluster: it chooses the host of each training, and nothing else.

What is trained, pruned and gone on from is decided by the searcher, which starts a training here as
it does on its own host. A task of Ray runs the training's program and holds its cores and GPUs. It
is cancelled to make the training save, and ends with the searcher. Ray does not start it again: the
searcher does.

Ray's processes on the hosts import this module, which therefore imports no torch.
"""

import logging
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.console import say
from bigtrk.disk.files import open_to_append
from bigtrk.errors import InputError, one_line, reason

LOOK = 0.2  # s between two looks at a training
DEVICES, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Share:
    """The share of a host that a trial is to have; None: a core for each rank, and a GPU where
    there are any.
    """

    cpus: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class RayPlace:
    """The right to one training at a time, of `ranks` ranks, on so many cores and GPUs of a host;
    the number tells places apart.
    """

    number: int
    ranks: int
    cpus: int
    gpus: int

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> "RayProcess":
        """Hands Ray a training, which waits until a host has room for it, `Place.start`."""
        import ray

        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(train_there)
        with_threads = {**environment, THREADS: self._threads}
        return RayProcess(task.remote(list(command), with_threads, Path.cwd(), log), log)

    @property
    def _threads(self) -> str:
        """Returns a rank's threads: Ray counts cores, and binds nobody to them."""
        threads = max(1, self.cpus // self.ranks)
        # A mere 1 is what torchrun sets by itself, and counts for nothing.
        return "1,1" if threads == 1 else str(threads)


class RayProcess:
    """A training that was handed to Ray as `task`; its output goes to `log`."""

    def __init__(self, task: Any, log: Path) -> None:
        self._task, self._log, self._ended = task, log, False

    def poll(self) -> int | None:
        """Returns 0 once it has ended, however; None until then, also while it waits for a host.
        If Ray ended it, the log says why.

        Raises:
            InputError: its host could not start it, and would not start another one.
        """
        import ray

        if not self._ended and ray.wait([self._task], timeout=0)[0]:
            self._ended = True
            self._hear(ray)
        return 0 if self._ended else None

    def terminate(self) -> None:
        """Asks it to save and end; one that waits for a host does not begin."""
        import ray

        ray.cancel(self._task)

    def _hear(self, ray: Any) -> None:
        try:
            refused = ray.get(self._task)
        except ray.exceptions.TaskCancelledError:
            return
        except ray.exceptions.RayError as error:  # such as of a host that is gone
            said = _COLOUR.sub("", str(error))
            with open_to_append(self._log) as log:
                log.write(f"{said}\nerror: Ray ended it: {_in_short(said)}\n")
            return
        if refused:
            raise InputError(refused)


def _in_short(said: str) -> str:
    """Returns the last line of Ray's message that names an error, if one does: what stands before
    it are Ray's own ways there.
    """
    named = [line for line in said.splitlines() if "Error" in line]
    return one_line(named[-1] if named else said)


def train_there(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> str:
    """Trains on the host that Ray chose, in `folder`, until the training ends or this task is to
    end; returns why the training could not be started, "" if it was.
    """
    import ray

    devices = ",".join(map(str, ray.get_gpu_ids()))
    try:
        with open_to_append(folder / log) as output:
            training = subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, DEVICES: devices},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        return (
            f"{platform.node()}: cannot start a training there ({reason(error)}); the search, its "
            f"data and bigtrk are to be under the same path on all hosts of the Ray cluster"
        )
    try:
        while training.poll() is None:
            time.sleep(LOOK)
    finally:  # Ray raises when the task was cancelled, or the searcher is gone
        training.terminate()
        training.wait()
    return ""


def ray_places(at_once: int, ranks: int, share: Share) -> list[RayPlace]:
    """Returns so many places of the cluster that RAY_ADDRESS names, or that of this host.

    Raises:
        InputError: Ray is not installed, there is no such cluster, or none of its hosts has what a
            trial is to have.
    """
    hosts = [node["Resources"] for node in _joined().nodes() if node["Alive"]]
    cpus, gpus = ([int(host.get(kind, 0)) for host in hosts] for kind in ("CPU", "GPU"))
    wanted_cpus = ranks if share.cpus is None else share.cpus
    wanted_gpus = (ranks if any(gpus) else 0) if share.gpus is None else share.gpus
    wanted = _told(wanted_cpus, wanted_gpus)
    if not any(c >= wanted_cpus and g >= wanted_gpus for c, g in zip(cpus, gpus, strict=True)):
        raise InputError(
            f"--executor ray: a trial is to have {wanted}, which none of the hosts of the cluster "
            f"has; lower --ranks, --cpus or --gpus"
        )
    say(f"Ray has {_told(sum(cpus), sum(gpus))} on {len(hosts)} hosts; a trial gets {wanted}")
    return [RayPlace(number, ranks, wanted_cpus, wanted_gpus) for number in range(at_once)]


def _told(cpus: int, gpus: int) -> str:
    return f"{cpus} core{'s' * (cpus != 1)} and {gpus} GPU{'s' * (gpus != 1)}"


def _joined() -> Any:
    """Returns Ray, joined to a cluster until this process ends."""
    try:
        import ray
    except ImportError:
        raise InputError("ray is not installed; pip install 'bigtrk[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"--executor ray: no cluster is joined ({reason(error)}); start one with `ray "
                f"start --head`, or name it in RAY_ADDRESS"
            ) from None
    return ray
