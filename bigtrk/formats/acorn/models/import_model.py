"""An Interaction GNN trained by acorn, brought in as a run: evaluated, trained on, exported."""

from pathlib import Path

import torch

from bigtrk.config import parse
from bigtrk.disk.files import new_folder
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.formats.acorn.models.checkpoint import AcornCheckpoint, read_checkpoint
from bigtrk.formats.acorn.models.hyper_parameters import HyperParameters
from bigtrk.formats.acorn.models.scales import our_scales, read_as_ours
from bigtrk.formats.acorn.models.weights import load_acorn_weights
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.records.run import MeasuredScales, RunRecord
from bigtrk.training.model_files import StoredModel, describe
from bigtrk.training.run_folder import create_run, record_end, save_model
from bigtrk.training.settings import Configuration, DataSettings


def import_model(file: Path, out: Path) -> StoredModel:
    """Makes a run of acorn's checkpoint `file`, in a new folder `out`; returns its model.

    Raises:
        InputError: the checkpoint cannot be read or is of a model that the Interaction GNN here is
            not, `out` holds something already, or the disk refuses; then nothing is written.
    """
    stored = read_model(file)
    configuration = stored.configuration
    parameters = sum(parameter.numel() for parameter in stored.model.parameters())
    record = RunRecord(
        world_size=1,
        engine="none",
        engine_detail=f"imported from acorn's {file.name}"[:1000],
        parameters=parameters,
        config=configuration.model_dump(mode="json"),
        measured=stored.measured,
    )
    with new_folder(out) as folder, FolderLock() as lock:
        create_run(lock, folder, record)
        save_model(folder, stored.model.state_dict(), describe(configuration, [], stored.measured))
        record_end(folder, "imported")
    return stored


def read_model(file: Path) -> StoredModel:
    """Reads the model of acorn's checkpoint `file`, which gives for our features what acorn gives
    for its own.

    Raises:
        InputError: as import_model.
    """
    checkpoint = read_checkpoint(file)
    settings = _settings(file, checkpoint)
    data = DataSettings(node_features=settings.node_features, edge_features=settings.edge_features)
    configuration = Configuration(data=data, model=settings.model_settings())
    measured = MeasuredScales(nodes=our_scales(settings.scales()[0]))
    return StoredModel(_model(file, checkpoint, settings), configuration, frozenset(), measured)


def _settings(file: Path, checkpoint: AcornCheckpoint) -> HyperParameters:
    content = dict(checkpoint.hyper_parameters)
    try:
        return parse(HyperParameters, content, f"{file}: hyper_parameters")
    except InputError as error:
        raise InputError(f"{error}; only an InteractionGNN2 like this can be imported") from None


def _model(file: Path, checkpoint: AcornCheckpoint, settings: HyperParameters) -> InteractionGNN:
    n_features = len(settings.node_features), len(settings.edge_features)
    # Shapes are compared before memory is taken for a model as large as the settings say.
    for device in ("meta", "cpu"):
        with torch.device(device):
            model = InteractionGNN(settings.model_settings(), *n_features)
        try:
            load_acorn_weights(model, checkpoint.weights)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    encoders = (model.node_encoder, model.edge_encoder)
    with torch.no_grad():
        for encoder, scales in zip(encoders, settings.scales(), strict=True):
            weight = encoder.get_parameter("mlp_0_weight")
            weight.copy_(read_as_ours(weight, scales))
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise InputError(f"{file}: {name} is beyond what float32 holds; look at its weights")
    return model
