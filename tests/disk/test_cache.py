"""The user's cache."""

from pathlib import Path

import pytest

from bigtrk.disk.cache import make_private


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy() -> None:
    # Not even root makes folders among those of processes.
    with pytest.raises(OSError, match=r"/proc/1/bigtrk: cannot be made \(.*\); set XDG_CACHE_HOME"):
        make_private(Path("/proc/1/bigtrk"))
