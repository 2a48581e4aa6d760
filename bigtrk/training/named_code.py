"""The code of the user's own that a configuration names."""

from bigtrk.models.settings import PyGConfig
from bigtrk.training.settings import Configuration
from bigtrk.user_code import names_code


def code_named(configuration: Configuration) -> list[str]:
    """Lists the names of code, each `package.module:Name`, in the settings that may have one."""
    model = configuration.model
    names = [model.module] if isinstance(model, PyGConfig) else [model.name]
    return [name for name in names if names_code(name)]
