"""The use of a trained model: how it is loaded, its licence, and how it is cited."""

from collections.abc import Iterator

from bigtrk import __version__
from bigtrk.records.run_folder import Run
from bigtrk.reports.model_card.markdown import code, escaped, points
from bigtrk.user_code import names_code

# As in CITATION.cff and in pyproject.toml, which are not installed.
TITLE = "bigtrk: training track-finding graph networks on graphs too large for one device"
AUTHORS = "The bigtrk developers"
LICENCE = "Apache-2.0"
REFERENCES = (
    "A. Tripathy, A. Lazar, X. Ju, P. Calafiura, K. Yelick and A. Buluç: Scaling Graph Neural "
    "Networks for Particle Track Reconstruction",
    "A. Lazar: Scalable GNN Training for Track Finding",
)


def loading(run: Run, embeds_hits: bool) -> Iterator[str]:
    """Writes the commands that load the model, for whoever is in its folder."""
    modules = sorted(
        {name.partition(":")[0] for name in run.record.newest_code() if names_code(name)}
    )
    if modules:
        yield (
            f"It runs code that is not bigtrk's: have {escaped(', '.join(modules))} in the folder "
            f"that you start in, or installed, and trust it."
        )
    option = "".join(f" --code {module}" for module in modules)
    yield "In this folder; from elsewhere name its path instead of the dot:"
    if embeds_hits:
        yield code("sh", f"bigtrk build EVENTS GRAPHS --embedding .{option}")
        return
    argument = f", code={modules}" if modules else ""
    yield code(
        "python",
        "import bigtrk",
        "",
        f'model = bigtrk.load_model("."{argument})',
        'graph = bigtrk.open_graphs("GRAPHS")[0]  # or bigtrk.build_graph(event)',
        "scores = model.score(graph)  # of its edges",
    )
    yield code(
        "sh",
        f"bigtrk evaluate . GRAPHS --tracks{option}",
        f"bigtrk infer . GRAPHS TRACKS{option}",
    )


def licences() -> str:
    """Says what is known of licences: that of bigtrk."""
    return points(
        (
            "Data: not stated in the folders of graphs.",
            "Weights: not stated.",
            f"bigtrk, which made and loads them: {LICENCE}.",
        )
    )


def citation(run: Run) -> str:
    """Says how to cite bigtrk, in the version that trained the model."""
    version = run.record.bigtrk or __version__
    cited = f"{AUTHORS}: {TITLE}, version {version}"
    return points((cited, *REFERENCES, "The data: as those ask who made them."))
