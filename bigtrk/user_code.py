"""Imports the user's own code, named as `package.module:Name`.

A run names such code, and runs come from anywhere. So a module is imported only if it is installed,
or the user named it on the command line or in a configuration of their own (`allow_code`).
"""

import hashlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bigtrk.console import ENDED
from bigtrk.errors import InputError, one_line, reason

_allowed: set[str] = set()
CODE_HELP = "module of your own that the run uses, if it is not installed; may be repeated"
Code = Annotated[list[str] | None, typer.Option("--code", metavar="MODULE", help=CODE_HELP)]


class Origin(NamedTuple):
    """The origin of code: distribution and version, or file and SHA-256, or a module's name."""

    source: str
    version: str | None


def names_code(name: str) -> bool:
    """True if `name` has the form `package.module:Name`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), attribute])


def allow_code(names: Iterable[str]) -> None:
    """Lets `load_code` import the modules of `names`, also from the working folder."""
    modules = [name.partition(":")[0] for name in names]
    for module in modules:
        is_name = all(part.isidentifier() for part in module.split("."))
        if not is_name or module.endswith(".py"):
            said = f"{one_line(module)}: is no name of a module"
            raise InputError(f"{said}; write it as Python imports it: --code package.module")
    _allowed.update(modules)


def code_options() -> list[str]:
    """Returns the modules allowed here as options of another bigtrk program."""
    return [word for module in sorted(_allowed) for word in ("--code", module)]


def code_origin(name: str, key: str) -> Origin:
    """Returns the origin of the code that `load_code` imports; raises as `load_code`."""
    found = load_code(name, key)
    module = getattr(found, "__module__", None) or name.partition(":")[0]
    if installed := _installed(tuple(sys.path)).get(module.partition(".")[0]):
        return Origin(installed[0], version_of(installed[0]))
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return Origin(module, None)
    return Origin(file, hashlib.sha256(Path(file).read_bytes()).hexdigest())


def load_code(name: str, key: str) -> Any:
    """Imports `module:Name` for setting `key`; InputError if it is not allowed or not there."""
    module, _, attribute = name.partition(":")
    if module not in _allowed and module.partition(".")[0] not in _installed(tuple(sys.path)):
        said = f"{key}={name}: the module {module} belongs to no installed package"
        raise InputError(f"{said}; if you trust this module, add --code {module}")
    folder = str(Path.cwd())
    if module in _allowed and folder not in sys.path:
        sys.path.append(folder)  # last, so that it hides nothing installed
    try:
        with no_exit():
            loaded = importlib.import_module(module)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        where = f"start in the folder that holds it (you are in {folder}) or install it"
        raise InputError(
            f"{key}={one_line(name)}: importing {module} fails ({type(error).__name__}: "
            f"{one_line(str(error))}); {where if is_missing else 'correct it'}"
        ) from error
    if not hasattr(loaded, attribute):
        file = getattr(loaded, "__file__", None) or "a package without code"
        raise InputError(f"{key}={name}: {module} ({file}) has no {attribute!r}; correct the name")
    return getattr(loaded, attribute)


def load_function(name: str, key: str, kind: str) -> Any:
    """Imports a function like `load_code`; InputError if not callable. kind: what it should be."""
    function = load_code(name, key)
    if not callable(function):
        raise InputError(f"{key}={name}: is not callable ({type(function).__name__}); name {kind}")
    return function


@contextmanager
def users_errors(failure: str, remedy: str = "correct it") -> Iterator[None]:
    """Turns any error or exit of a user's code in the block into an InputError."""
    try:
        with no_exit():
            yield
    except Exception as error:
        said = f"{type(error).__name__}: {reason(error)}"
        raise InputError(f"{failure} ({said}); {remedy}") from error


@contextmanager
def no_exit() -> Iterator[None]:
    """Turns sys.exit by a user's code in the block into a RuntimeError, so that it is noticed."""
    try:
        yield
    except SystemExit as end:
        if end.code == ENDED:  # SIGTERM ended the process meanwhile
            raise
        said = f"it calls sys.exit({end.code!r}), which would end the program; raise an error there"
        raise RuntimeError(said).with_traceback(end.__traceback__) from None


@cache
def _installed(_: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Returns each package's distributions, in 0.2 s; the argument, sys.path, keys the cache."""
    return packages_distributions()
