"""The code of the user's own that a configuration names."""

from bigtrk.training.settings import Configuration
from bigtrk.user_code import names_code


def code_named(configuration: Configuration) -> list[str]:
    """Lists the names of code, each `package.module:Name`, in the settings that may have one."""
    return [name for name in (configuration.model.name,) if names_code(name)]
