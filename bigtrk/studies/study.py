"""The command line and the folder of a study: a series of trainings, or a search."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bigtrk.config import overlap, override
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.planning.command import split_arguments
from bigtrk.records.record import FileRecord, read_record, write_record


def split_study(
    command: str, arguments: Sequence[str], default: Path, taken: Mapping[str, str]
) -> tuple[Path, list[str]]:
    """Returns the configuration file of a command line, and the overrides, that of its data folders
    last. taken: the settings that the command makes, each with the way to choose it.

    Raises:
        InputError: an override makes one of these settings, or there are two files.
    """
    path, overrides, folders = split_arguments(arguments, default)
    for given in overrides:
        for key, instead in taken.items():
            if overlap(given.partition("=")[0], key):
                raise InputError(f"{given}: bigtrk {command} sets {key}; {instead}")
    data = [override("data.train", [str(folder) for folder in folders])] if folders else []
    return path, [*overrides, *data]


def open_study(path: Path, record: FileRecord, same: Sequence[str]) -> None:
    """Writes the record of a study, or checks that the one there has the `same` fields.

    Raises:
        InputError: its folder holds another study, or something else; or the disk refuses.
    """
    folder, wanted = path.parent, record.model_dump(mode="json")
    with disk_errors():
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            found = read_record(type(record), path).model_dump(mode="json")
            for what in same:
                if found[what] != wanted[what]:
                    raise InputError(
                        f"{folder}: holds a {path.stem} of another {what} "
                        f"({_first_difference(found[what], wanted[what])}); choose another --out"
                    )
        elif any(not held.name.startswith(".") for held in folder.iterdir()):
            raise InputError(f"{folder}: holds something else; choose another --out")
        write_record(path, record)


def _first_difference(old: object, new: object, key: str = "") -> str:
    """Returns the first key of two configurations that differs, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = next(k for k in {**old, **new} if old.get(k) != new.get(k))
        return _first_difference(old.get(changed), new.get(changed), f"{key}{changed}.")
    return f"{key[:-1]} {old} instead of {new}".strip()
