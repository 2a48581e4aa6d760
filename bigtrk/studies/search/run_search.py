"""A search on this host, taken up where it ended."""

import shlex

from bigtrk.console import console, say
from bigtrk.records.search import RESULT
from bigtrk.studies.search.launcher import make_launcher
from bigtrk.studies.search.outcomes import show_outcomes
from bigtrk.studies.search.places import share_host, visible_devices
from bigtrk.studies.search.plan import Search, open_search
from bigtrk.studies.search.population.population import PopulationSearcher
from bigtrk.studies.search.searcher import Searcher
from bigtrk.studies.search.study import SharedStudy


def run_search(search: Search, trials: int, at_once: int, ranks: int, launcher: str | None) -> None:
    """Trains and prunes until `trials` parameter sets have been drawn and no trial is left that
    nobody sees to, or trains a population of so many; then shows what was found.

    Raises:
        InputError: the folder holds another search, or the host is too small.
        StoppedError: a signal asked for it.
    """
    places = share_host(at_once, ranks, visible_devices())
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
