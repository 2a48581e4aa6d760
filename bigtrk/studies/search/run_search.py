"""A search from this host, taken up where it ended."""

import shlex
from collections.abc import Sequence

from bigtrk.console import console, say
from bigtrk.records.search import RESULT
from bigtrk.studies.search.launcher import make_launcher
from bigtrk.studies.search.outcomes import show_outcomes
from bigtrk.studies.search.places import Place, share_host, visible_devices
from bigtrk.studies.search.plan import Search, open_search
from bigtrk.studies.search.population.population import PopulationSearcher
from bigtrk.studies.search.ray_places import Share, ray_places
from bigtrk.studies.search.searcher import Searcher
from bigtrk.studies.search.study import SharedStudy


def run_search(
    search: Search,
    trials: int,
    at_once: int,
    ranks: int,
    launcher: str | None,
    on_ray: Share | None = None,
) -> None:
    """Trains and prunes until `trials` parameter sets have been drawn and no trial is left that
    nobody sees to, or trains a population of so many; then shows what was found.

    on_ray: what each trial is to have of a host that Ray chooses; None: they share this one.

    Raises:
        InputError: the folder holds another search, or the host or the cluster is too small.
        StoppedError: a signal asked for it.
    """
    places: Sequence[Place]
    if on_ray is None:
        places = share_host(at_once, ranks, visible_devices())
    else:
        places = ray_places(at_once, ranks, on_ray)
    chosen = make_launcher(ranks, launcher)
    open_search(search)
    if search.space.population:
        population = PopulationSearcher(search, places, trials, chosen)
        population.run()
        population.write_result()
        outcomes = population.outcomes()
    else:
        study = SharedStudy(search.folder, search.space, search.record.storage)
        Searcher(search, study, places, trials, chosen).run()
        study.write_result()
        outcomes = study.outcomes()
    show_outcomes(search, outcomes, console)
    page = f"bigtrk report {shlex.quote(str(search.folder))} --html PAGE"
    say(f"all trials are in {search.folder / RESULT}; to see them: {page}")
