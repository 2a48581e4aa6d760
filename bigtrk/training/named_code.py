"""The code of the user's own that a configuration names, and what a run records of it."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.config import load_settings
from bigtrk.console import warn_once
from bigtrk.models.settings import PyGConfig
from bigtrk.records.run import CodeRecord
from bigtrk.records.run_folder import RUN, read_run_record
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code, code_origin, names_code


def users_configuration(path: Path, overrides: Sequence[str]) -> Configuration:
    """Reads a configuration that the user gives, so that the code that it names may be imported.

    Raises:
        InputError: as of `load_settings`.
    """
    configuration = load_settings(Configuration, path, overrides)
    allow_code(code_named(configuration))
    return configuration


def code_named(configuration: Configuration) -> list[str]:
    """Lists the names of code, each `package.module:Name`, in the settings that may have one."""
    return [name for _, name in _keys_and_names(configuration)]


def code_records(configuration: Configuration) -> dict[str, CodeRecord]:
    """Imports the code that is named, and tells where each came from, by name.

    Raises:
        InputError: some cannot be imported, or nobody but the configuration names it.
    """
    found = {name: code_origin(name, key) for key, name in _keys_and_names(configuration)}
    return {name: CodeRecord(source=one.source, version=one.version) for name, one in found.items()}


def warn_of_other_code(run: Path, configuration: Configuration) -> None:
    """Complains in one line of each code that is another version than a run was last trained with.

    Raises:
        InputError: as of `code_records`; or the record is damaged.
    """
    here = code_records(configuration)
    recorded = read_run_record(run).newest_code() if here and (run / RUN).exists() else {}
    for name, code in here.items():
        known = recorded.get(name)
        if known and known.version != code.version:
            warn_once(
                f"code of {run}: {name}",
                f"{run}: was trained with another version of {name} ({known.source}, "
                f"{_short(known.version)}) than {code.source}, {_short(code.version)}; results "
                f"may differ",
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
