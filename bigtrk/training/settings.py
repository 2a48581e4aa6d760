"""The settings of a training run, and the user's own code that they name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bigtrk.config import Settings, load_settings
from bigtrk.console import warn_once
from bigtrk.graphs.event_graph import Target
from bigtrk.models.settings import InteractionGNNConfig, ModelConfig, PyGConfig
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.watchdog import ANSWERS, Patience
from bigtrk.records.run import CodeRecord
from bigtrk.records.run_folder import RUN, read_run_record
from bigtrk.user_code import allow_code, code_origin, names_code

Batching = Literal["random", "buckets", "cost"]
Metric = Literal[
    "loss",
    "auc",
    "efficiency",
    "target_purity",
    "total_purity",
    "purity",
    "log_pt_error",
    "train_loss",
]
# For all other metrics, larger is better.
MINIMISED: tuple[Metric, ...] = ("loss", "log_pt_error", "train_loss")


class BestSettings(Settings):
    """The metric of the best epoch, and how many epochs a run continues without a better one."""

    metric: Metric | None = None
    """Keep the checkpoint of the best epoch by this metric, named in the run's `best.json`. The
    metric is the validation's `loss`, `auc`, `efficiency`, `target_purity`, `total_purity`,
    `purity` or `log_pt_error`, or `train_loss`. Small losses and errors are best, and large values
    of the others. By default only the newest checkpoints are kept."""
    patience: int | None = Field(None, ge=1, lt=2**31)
    """End the run after this many epochs in a row without a better one [epochs]."""

    @model_validator(mode="after")
    def _has_a_metric(self) -> Self:
        if self.patience is not None and self.metric is None:
            raise ValueError("patience needs a metric; set training.best.metric")
        return self


class NegativeSettings(Settings):
    """False edges that each step trains (model.name=mlp, in wedges or sectors): all of them, unless
    `hard` or `easy` is given.

    A pass without gradients then scores all edges of a wedge. The step trains all true edges, the
    hardest false ones and some others. False edges have equal weights, which add up to the number
    of all false edges. So scores are no probabilities, and the loss of validation is higher.
    """

    hard: float = Field(0.0, ge=0, le=1e6)
    """The hardest false edges, those with the highest scores, for each true edge [edges]."""
    easy: float = Field(0.0, ge=0, le=1e6)
    """False edges drawn at random from the others, for each true edge [edges]."""

    @property
    def are_chosen(self) -> bool:
        """Whether only some of the false edges are trained."""
        return self.hard > 0 or self.easy > 0


class PairSettings(Settings):
    """Pairs of hits that train an embedding (model.name=embedding). The loss is the mean squared
    distance of true pairs, plus a mean over false pairs: the squared margin minus the squared
    distance, where that is positive.

    True pairs are the edges of the graph, weighted as `target` says. Hard false pairs are drawn
    hits with their nearest neighbours in the current embedding; the others are random. Pairs of
    hits of one particle that no edge joins are left out.
    """

    margin: float = Field(1.0, gt=0)
    """Distance in the embedding from which a false pair costs nothing."""
    hard_hits: int = Field(4000, ge=0, lt=2**31)
    """Hits of each event, or part of one, whose neighbours are false pairs [hits]."""
    neighbours: int = Field(20, ge=1, le=1000)
    """The most neighbours of such a hit, all within the margin [hits]."""
    random_pairs: int = Field(4000, ge=0, lt=2**31)
    """Random pairs of each event, or part of one [pairs]."""

    def false_pairs(self, n_hits: int) -> int:
        """Returns the number of false pairs drawn for `n_hits` hits, before any is left out."""
        if n_hits < 2:
            return 0
        return min(self.hard_hits, n_hits) * min(self.neighbours, n_hits - 1) + self.random_pairs


class DataSettings(Settings):
    """Events to train on and to validate on, and the features that a model reads of them."""

    train: list[Path] = Field([Path("graphs")], min_length=1)
    """Folders of graphs (`bigtrk build`) and of sectors (`python -m partition`). An event found in
    both is trained in sectors."""
    validation: int | list[Path] = 1
    """The number of events held back from the end of `train` (by name), or folders of their own."""
    events: int | None = Field(None, ge=1, lt=2**31)
    """The number of events to train on: the first of `train` by name, without those held back. All
    by default."""
    sectors: Literal["halo", "naive"] = "halo"
    """`halo` exchanges halos and trains as the whole graph does; `naive` trains each stored sector
    alone, without its cut edges. Both are scored as the whole graph."""
    node_features: list[str] = Field(["r", "phi", "z", "eta"], min_length=1, max_length=64)
    """Features of a node that the model reads: r, phi (also as cos_phi and sin_phi), z, eta, and
    cluster_count, cluster_value, cluster_u and cluster_v of events with cells. Any other column of
    the graphs works, too, and so do functions of your own, `package.module:function`."""
    edge_features: list[str] = Field(
        ["dr", "dphi", "dz", "deta", "phislope", "rphislope"], max_length=64
    )
    """Features of an edge that the model reads: columns of the graphs, or functions of your own of
    these and of the columns of both nodes, `package.module:function`. Of nodes with r, phi and z
    the default ones are computed where graphs lack them; so are z0, where a straight line through
    both hits meets the beam line [mm], and waves: the sine and cosine of z0 (sin_z0_L and cos_z0_L
    for a length L of 4, 16, 64 and 256 mm) and of phislope (L of 0.0001, 0.0004 and 0.0016 rad/mm).
    `[]`: none."""

    @property
    def feature_counts(self) -> tuple[int, int]:
        """Returns the numbers of node features and of edge features."""
        return len(self.node_features), len(self.edge_features)


class SamplingSettings(Settings):
    """Training on parts of events, one after another, instead of whole events.

    Validation takes whole events.
    """

    method: Literal["none", "shadow", "sectors", "wedges"] = "none"
    """`none` trains whole events. `wedges`: a step trains `training.events_per_step` wedges in phi
    of whole events, each turned around the beam line and mirrored at random. `shadow`: a step
    trains the ShaDow subgraphs of some nodes of one event, shared among the ranks (Tripathy et
    al.). `sectors`: a step trains `training.events_per_step` stored sectors. With
    `data.sectors=halo` it also computes a sector's halo, from the sector alone."""
    depth: int = Field(3, ge=1, lt=2**31)
    """The reach of a ShaDow subgraph from its node [hops]."""
    fanout: int = Field(6, ge=1, lt=2**31)
    """The most edges of a node that a ShaDow subgraph follows [edges]."""
    batch_size: int = Field(256, ge=1, lt=2**31)
    """Nodes whose ShaDow subgraphs make a step [nodes]."""
    bulk: int = Field(8, ge=1, lt=2**31)
    """ShaDow mini-batches that are sampled at once [mini-batches]."""
    wedges: int = Field(8, ge=1, lt=2**16)
    """Wedges of an event [wedges]."""


def _loss(name: str) -> str:
    if name not in ("bce", "focal") and not names_code(name):
        raise ValueError("must be bce, focal, or a function of your own as package.module:function")
    return name


class TrainingSettings(Settings):
    """Steps, their loss, the distribution of events over ranks, and the guards of a run."""

    epochs: int = Field(10, ge=1, lt=2**31)
    """How many times each event is trained on [epochs]."""
    events_per_step: int = Field(1, ge=1, lt=2**31)
    """Events that make one optimizer step, on however many ranks [events]."""
    batching: Batching = "random"
    """Choice of a step's events. `random`: any. `buckets`: events of like cost, so that ranks end
    a step together. `cost`: large events with small ones, so that steps take equally long. The cost
    is the predicted number of operations for nodes and edges."""
    seed: int = Field(0, ge=0, lt=2**63)  # what torch takes
    """Seed of the order of events and of the initial weights, except those of `init_from`."""
    class_balance: Literal["proportional", "equal"] = "proportional"
    """`proportional` divides an event's loss by its number of edges. `equal` divides the losses of
    true and of false edges each by their own number."""
    loss: Annotated[Literal["bce", "focal"] | str, AfterValidator(_loss)] = "bce"
    """The loss of an edge: binary cross-entropy (`bce`), `focal`, which stresses edges with wrong
    scores (Lin et al.), or a function of your own, `package.module:function`. True edges outside
    the target have no weight, as in acorn, unless you set `target.other_weight`."""
    focal_gamma: float = Field(2.0, ge=0)
    """The power of the focal loss: (1 - p)^gamma is the factor of an edge of score p for its truth.
    With 0 the loss is binary cross-entropy."""
    step_loss: Literal["per_event", "per_edge"] = "per_event"
    """The mean over the step's events (`per_event`, as acorn) or all its edges (`per_edge`)."""
    edge_cut: float = Field(0.5, gt=0, lt=1)
    """Score above which metrics take an edge as true."""
    routing: Literal["automatic", "stored"] = "automatic"
    """`automatic` trains each event in the sectors that fit `memory_gib` and end the step soonest.
    It merges stored sectors into one per rank, or gives a rank several if one does not fit.
    `stored` trains all stored sectors, several on a rank if there are fewer ranks."""
    memory_gib: float | None = Field(None, gt=0)
    """Memory of each rank that routing may fill; by default nine tenths of its own [GiB]."""
    auto: bool = False
    """Choose open settings at the start, the first that fit by counted memory: `model.recompute`
    (`none`, `layer`, `chunk`), the engine (`ddp`, else `fsdp2`), whether edges go to files of
    `spill`, and `memory_gib`. None of these changes the training's result. The run's record has the
    choice."""
    spill: Path | None = None
    """Folder of a local disk that takes edges between layers, and then their inputs, if
    `memory_gib` has no room. The files vanish with the process. An event may be as large as the
    disk allows. For model.name=interaction with model.recompute=chunk."""
    cuda_graphs: bool = False
    """Replay CUDA graphs for passes of up to 200,000 edges that a rank computes alone, such as
    mini-batches, with model.name=interaction in bf16 and engine.name=ddp. No GPU has tried it yet.
    Results stay the same."""
    minutes: float | None = Field(None, gt=0)
    """End the run after this time of training, validation not counted; by default none [min]."""
    validate_minutes: float | None = Field(None, gt=0)
    """Time between validations within an epoch; by default there are none [min]."""
    lr_factors: dict[str, Annotated[float, Field(ge=0)]] = Field({}, max_length=100)
    """Factors of the learning rate by the names of parameters, `{"node_encoder.*": 0.1}`. The first
    pattern (`*`, `?`, `[ab]`) that matches a name counts; other factors are 1. A factor of 0 keeps
    weights as they are."""
    average_decay: float | None = Field(None, gt=0, lt=1)
    """Decay of an exponential moving average of the weights, per step. The average is validated
    after each epoch and written next to the model; `best.metric` judges epochs by it. By default
    there is none."""
    best: BestSettings = BestSettings()
    """The best epoch, and the run's end without a better one."""
    checkpoint_every: int | None = Field(None, ge=1, lt=2**31)
    """Steps between checkpoints within an epoch. There is always one after each epoch and when the
    time is up [steps]."""
    norms_every: int = Field(10, ge=0, lt=2**31)
    """Steps between records of the norms of gradients and weights, by part of the model; 0 for
    never [steps]."""
    pt_weight: float = Field(0.0, ge=0)
    """Weight of the auxiliary loss, the smooth L1 loss of the log of pT predicted for true edges.
    With 0 the model has no such head."""
    spike_guard: Literal["off", "skip"] = "off"
    """The treatment of a step whose loss is far above recent ones, or whose loss or gradients are
    not finite. `skip` drops its gradients; `off` trains on it, and stops at a loss that is not
    finite."""
    spike_threshold: float = Field(10.0, gt=0)
    """Distance above the median of recent losses at which a loss is a spike [median absolute
    deviations]."""


class RunSettings(Settings):
    """The folder and the records of a run, and how long ranks wait for each other."""

    folder: Path | None = None
    """Folder of the run; by default the next free number under `runs/`."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Loggers that also get the record, scalar by scalar."""
    price_per_device_hour: float | None = Field(None, ge=0)
    """Price of a rank's device, for reports; it changes no training [dollars/h]."""
    silent_seconds: float = Field(Patience.silent, gt=ANSWERS, le=1e9)
    """A rank that is silent for this time while others wait ends the run. At the start the run ends
    if no further rank comes for this time: raise it if some ranks start late, for example with
    imports from a slow file system [s]."""
    stalled_seconds: float = Field(Patience.stalled, gt=ANSWERS)
    """A rank that stays in one operation for this time while others wait ends the run [s]."""

    @property
    def patience(self) -> Patience:
        """Returns how long ranks wait for a rank that is late."""
        return Patience(self.silent_seconds, self.stalled_seconds)


class Configuration(Settings):
    """Everything that decides a run's result, and where it is written."""

    data: DataSettings = DataSettings()
    """Events and their features."""
    model: ModelConfig = InteractionGNNConfig()
    """The network; `model.name` chooses one."""
    target: Target = Target()
    """True edges that the training should find."""
    engine: EngineSettings = EngineSettings()
    """How ranks share the model."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """The optimizer and its learning rate."""
    sampling: SamplingSettings = SamplingSettings()
    """Parts of events instead of whole ones."""
    pairs: PairSettings = PairSettings()
    """Pairs of hits that train an embedding."""
    negatives: NegativeSettings = NegativeSettings()
    """False edges that train a model of single edges."""
    training: TrainingSettings = TrainingSettings()
    """Steps, loss, routing, guards."""
    run: RunSettings = RunSettings()
    """The run's record."""
    profile: bool = False
    """Also write a trace of three steps, for Perfetto, into the run's folder."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Raises ValueError for a setting that contradicts another one."""
        model, method, training = self.model, self.sampling.method, self.training
        embeds, spills = model.kind == "hit", training.spill is not None
        chosen, recompute = self.negatives.are_chosen, getattr(model, "recompute", "none")
        for is_wrong, told in (
            (
                method == "shadow" and training.events_per_step > 1,
                "with sampling.method=shadow a step is of one event: set training.events_per_step=1"
                " and sampling.batch_size",
            ),
            (
                spills and not model.spills,
                f"training.spill: model.name={model.name} with model.recompute={recompute} keeps "
                f"no edges that could be spilled; set model.name=interaction and "
                f"model.recompute=chunk, or leave it out",
            ),
            (
                spills and method != "none",
                f"training.spill: is for whole events, not for sampling.method={method}, whose "
                f"parts can be made smaller",
            ),
            (
                self.optimizer.name == "muon" and not self.engine.spec.whole_matrices,
                f"optimizer.name=muon: with engine.name={self.engine.name} ranks update parts of "
                f"matrices, and Muon whole ones; set engine.name=ddp, or optimizer.name=adamw",
            ),
            (
                training.auto and method != "none",
                f"training.auto: is for steps of whole events, not for sampling.method={method}; "
                f"set it to false",
            ),
            (
                training.pt_weight > 0 and not model.has_pt_head,
                f"training.pt_weight: model.name={model.name} has no head for pT; set it to 0, "
                f"or model.name=interaction",
            ),
            (
                embeds and method in ("shadow", "sectors"),
                f"sampling.method={method}: needs edges, but model.name={model.name} reads none; "
                f"choose wedges or none",
            ),
            (
                embeds and training.loss != "bce",
                f"training.loss={training.loss}: is for edges, but model.name={model.name} embeds "
                f"hits; leave it out",
            ),
            (
                chosen and not model.scores_alone,
                f"negatives: model.name={model.name} does not score an edge by itself, so no edge "
                f"can be left out; set negatives.hard=0 and negatives.easy=0, or model.name=mlp",
            ),
            (
                chosen and method not in ("wedges", "sectors"),
                f"negatives: they are chosen within a part of an event that one rank trains, not "
                f"with sampling.method={method}; set it to wedges",
            ),
        ):
            if is_wrong:
                raise ValueError(told)
        return self


def users_configuration(path: Path, overrides: Sequence[str]) -> Configuration:
    """Reads the user's configuration file and allows its code; raises as `load_settings`."""
    configuration = load_settings(Configuration, path, overrides)
    allow_code(code_named(configuration))
    return configuration


def code_named(configuration: Configuration) -> list[str]:
    """Lists the user's own code in a configuration, each as `package.module:Name`."""
    return [name for _, name in _keys_and_names(configuration)]


def code_records(configuration: Configuration) -> dict[str, CodeRecord]:
    """Returns the version of each of the user's own code, by its name; raises as `load_code`."""
    found = {name: code_origin(name, key) for key, name in _keys_and_names(configuration)}
    return {name: CodeRecord(source=one.source, version=one.version) for name, one in found.items()}


def warn_of_other_code(run: Path, configuration: Configuration) -> None:
    """Warns if the user's code has changed since the run; raises as `code_records`."""
    here = code_records(configuration)
    recorded = read_run_record(run).newest_code() if here and (run / RUN).exists() else {}
    for name, code in here.items():
        known = recorded.get(name)
        if known and known.version != code.version:
            warn_once(
                f"code of {run}: {name}",
                f"{run}: was trained with another version of {name} ({known.source}, "
                f"{_short(known.version)}); here it is {code.source}, {_short(code.version)}; "
                f"results may differ",
            )


def _keys_and_names(configuration: Configuration) -> list[tuple[str, str]]:
    data, model = configuration.data, configuration.model
    network = [("model.options.module", model.module)] if isinstance(model, PyGConfig) else []
    named = [
        ("model.name", model.name),
        *network,
        *(("data.node_features", name) for name in data.node_features),
        *(("data.edge_features", name) for name in data.edge_features),
        ("training.loss", configuration.training.loss),
    ]
    return [(key, name) for key, name in named if names_code(name)]


def _short(version: str | None) -> str:
    return "of no version" if version is None else f"version {version[:12]}"
