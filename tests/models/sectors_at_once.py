"""A model of the simple form on all sectors of a cut at once, in threads of one process, which
exchange with each other as ranks do; gradients flow through.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from torch import Tensor, nn

from tests.models.graphs import Cut


def run_at_once(models: Sequence[nn.Module], cut: Cut) -> list[Tensor]:
    """The results of the sectors of `cut`; each sector has one of the `models`, since a model notes
    in its layers which sector it computes.
    """
    given: list[Tensor] = [None] * len(cut.sectors)  # type: ignore[list-item]
    received: list[Tensor] = []

    def swap() -> None:
        received[:] = cut.exchange(given)

    together = Barrier(len(cut.sectors), swap, timeout=300)

    def run(k: int) -> Tensor:
        def exchange(owned: Tensor) -> Tensor:
            given[k] = owned
            together.wait()
            return received[k]

        try:
            made: Tensor = models[k](*cut.sectors[k], exchange)
        except BaseException:
            together.abort()
            raise
        return made

    with ThreadPoolExecutor(len(cut.sectors)) as threads:
        return list(threads.map(run, range(len(cut.sectors))))
