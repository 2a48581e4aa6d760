"""Every command of docs/acts.md, in its order."""

import re
from pathlib import Path

from tests.programs import CHECKOUT, run_in_one

PAGE = (CHECKOUT / "docs" / "acts.md").read_text()


def test_the_commands_run(tmp_path: Path) -> None:
    """Runs on smaller events."""
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    commands = block.replace("--particles 500", "--particles 60").splitlines()
    run_in_one([line.replace("epochs=3", "epochs=1") for line in commands], tmp_path)
    written = {path.name for path in (tmp_path / "for-acts").iterdir()}
    named = set(re.findall(r"`(classifier\w*\.\w+)`", PAGE))
    assert named < written
    assert "README.md" in written
