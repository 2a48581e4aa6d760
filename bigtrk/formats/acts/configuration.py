"""The Python with which ACTS's examples load exported models (gnn_metric_learning.py and
gnn_module_map_odd.py there).
"""

from collections.abc import Sequence

from bigtrk.formats.acts.forms import EDGE_ATTR
from bigtrk.formats.acts.stage import Stage
from bigtrk.models.mlps import Embedding

_PLACES = {"r": "R", "phi": "Phi", "z": "Z", "eta": "Eta"}
# What ACTS's NodeFeature calls columns of a hit and, as in the ITk, of its two clusters.
ACTS_NAMES = _PLACES | {
    f"cluster_{name}_{i}": f"Cluster{i}{theirs}" for i in (1, 2) for name, theirs in _PLACES.items()
}
RADIUS = 1.6  # ACTS's own
_BEHIND_AN_EMBEDDING = """\
from pathlib import Path

import acts
from acts.examples.gnn import (
    BoostTrackBuilding,
    NodeFeature,
    TorchEdgeClassifier,
    TorchMetricLearning,
)
from acts.examples.reconstruction import addGnn


def add_track_finding(sequencer: acts.examples.Sequencer, models: Path) -> None:
    \"\"\"Adds the models in folder `models`, behind the algorithms that make space points.\"\"\"
    level = acts.logging.INFO
    addGnn(
        sequencer,
        graphConstructor=TorchMetricLearning(
            level=level,
            modelPath=str(models / "{embedding}.pt"),
            embeddingDim={dimensions},
            rVal={radius},
            knnVal=500,
            selectedFeatures={selected},
        ),
        edgeClassifiers=[{classifiers}],
        trackBuilder=BoostTrackBuilding(level=level),
        nodeFeatures=[{features}],
        featureScales=[{scales}],
    )
"""
_BEHIND_A_MODULE_MAP = """\
from pathlib import Path

import acts
from acts.examples.gnn import (
    CudaTrackBuilding,
    ModuleMapCuda,
    NodeFeature,
    TorchEdgeClassifier,
)
from acts.examples.reconstruction import addGnn


def add_track_finding(
    sequencer: acts.examples.Sequencer, models: Path, module_map: str
) -> None:
    \"\"\"Adds the models in folder `models`, behind the algorithms that make space points and
    clusters; module_map: what the names of its two files begin with.
    \"\"\"
    level = acts.logging.INFO
    addGnn(
        sequencer,
        graphConstructor=ModuleMapCuda(
            level=level,
            moduleMapPath=module_map,
            rScale=1000.0,
            phiScale=3.141592654,
            zScale=1000.0,
            etaScale=1.0,
            gpuDevice=0,
            gpuBlocks=512,
        ),
        edgeClassifiers=[{classifiers}],
        trackBuilder=CudaTrackBuilding(level=level, doJunctionRemoval=True),
        nodeFeatures=[{features}],
        featureScales=[{scales}],
        inputClusters="clusters",
    )
"""
_CLASSIFIER = """
            TorchEdgeClassifier(
                level=level,
                modelPath=str(models / "{file}.pt"),
                cut={cut!r},
                nChunks=1,
                undirected=False,
                useEdgeFeatures={attributed},
                selectedFeatures={selected},
            ),"""


def joined_scales(stages: Sequence[Stage]) -> dict[str, float]:
    """Lists the columns that ACTS is to make for all stages, and the scale of each."""
    return {name: scale for stage in stages for name, scale in stage.columns.scales.items()}


def written_scale(scale: float) -> str:
    """Writes a scale as ACTS's examples do, in which pi has ten digits."""
    return repr(float(f"{scale:.10g}"))


def configuration(stages: Sequence[Stage]) -> str:
    """Writes the Python that adds these stages, an embedding first where there is one."""
    embeddings = [stage for stage in stages if isinstance(stage.model, Embedding)]
    scales = joined_scales(stages)
    common = {
        "classifiers": _classifiers(stages, attributed=not embeddings),
        "features": "".join(f"\n            {_feature(name)}" for name in scales) + "\n        ",
        "scales": ", ".join(map(written_scale, scales.values())),
    }
    if not embeddings:
        return _BEHIND_A_MODULE_MAP.format(**common)
    [first] = embeddings
    assert isinstance(first.model, Embedding)
    return _BEHIND_AN_EMBEDDING.format(
        embedding=first.name,
        dimensions=first.model.config.dimensions,
        radius=repr(RADIUS if first.radius is None else first.radius),
        selected=_selected(first, list(scales)),
        **common,
    )


def _classifiers(stages: Sequence[Stage], attributed: bool) -> str:
    names = list(joined_scales(stages))
    written = [
        _CLASSIFIER.format(
            file=stage.name + (EDGE_ATTR if attributed else ""),
            cut=stage.cut,
            attributed=attributed,
            selected=_selected(stage, names),
        )
        for stage in stages
        if not isinstance(stage.model, Embedding)
    ]
    return "".join(written) + "\n        " if written else ""


def _selected(stage: Stage, names: list[str]) -> list[int]:
    """Lists the columns of a stage among all, as ACTS's classes take them."""
    return [names.index(name) for name in stage.columns.names]


def _feature(name: str) -> str:
    acts = ACTS_NAMES.get(name)
    return f"NodeFeature.{acts}," if acts else f"# the feature of ACTS that is {name} here"
