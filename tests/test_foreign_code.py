"""Code that somebody else could have put where compiled code is kept is not run."""

import os
import shutil
from pathlib import Path

import pytest

from tests.answers import CALL, Place

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OTHER = 54321
# Another library takes the name of the one that was checked, when that is about to be loaded.
SWAP = """
import ctypes, os
class Swapped(ctypes.CDLL):
    def __init__(self, name):
        os.replace(HOSTILE, PATH)
        super().__init__(name)
ctypes.CDLL = Swapped
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One whose cache holds the library."""
    place = Place(tmp_path)
    assert place.ask() == ("42", [])
    return place


def assert_not_run(place: Place, why: str) -> None:
    """Checks that what was planted is neither run nor replaced, and that the line says why."""
    planted = place.library.read_bytes()
    answer, (line,) = place.ask()
    assert answer == "42"
    assert why in line
    assert place.library.read_bytes() == planted


@pytest.mark.parametrize("named", ["", "here"])
def test_the_working_folder_is_no_cache(place: Place, named: str) -> None:
    planted = place.work / named / "bigtrk" / place.library.name
    planted.parent.mkdir(parents=True)
    place.plant(planted)
    assert place.ask(XDG_CACHE_HOME=named) == ("42", [])
    place.library.unlink()
    assert place.ask(XDG_CACHE_HOME=named, HOME=named).answer == "42"


@pytest.mark.parametrize("mode", [0o646, 0o664])
def test_a_library_that_others_may_write_is_made_again(place: Place, mode: int) -> None:
    place.plant(place.library)
    place.library.chmod(mode)
    assert place.ask() == ("42", [])
    assert place.library.stat().st_mode & 0o777 == 0o600


@needs_root
def test_a_library_of_another_user_is_made_again(place: Place) -> None:
    place.plant(place.library)
    os.chown(place.library, OTHER, OTHER)
    assert place.ask() == ("42", [])
    assert place.library.stat().st_uid == 0


@pytest.mark.parametrize("mode", [0o757, 0o775, 0o1777])
def test_a_cache_that_others_may_write_is_not_used(place: Place, mode: int) -> None:
    place.plant(place.library)
    place.cache.chmod(mode)
    assert_not_run(place, f"{place.cache}: others may write to it; chmod go-w it")


@pytest.mark.parametrize("above", [".cache", "."])
@pytest.mark.parametrize("mode", [0o757, 0o775])
def test_nor_one_that_others_may_replace(place: Place, above: str, mode: int) -> None:
    place.plant(place.library)
    (place.home / above).chmod(mode)
    assert_not_run(place, f"{place.home / above}: others may write to it")


@needs_root
@pytest.mark.parametrize("owned", [".cache/bigtrk", ".cache", "."])
def test_nor_one_below_a_folder_of_another_user(place: Place, owned: str) -> None:
    place.plant(place.library)
    os.chown(place.home / owned, OTHER, OTHER)
    assert_not_run(place, f"{place.home / owned}: belongs to user {OTHER}")


def test_one_beside_those_of_others_is_used(place: Place) -> None:
    """The folder may be shared as /tmp is."""
    place.home.chmod(0o1777)
    assert place.ask() == ("42", [])


def test_a_link_in_place_of_a_library_is_not_followed(place: Place) -> None:
    elsewhere = place.work / "planted.so"
    place.plant(elsewhere)
    planted = elsewhere.read_bytes()
    path = place.library
    path.unlink()
    path.symlink_to(elsewhere)
    assert place.ask() == ("42", [])
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == planted


@pytest.mark.parametrize("linked", [".cache/bigtrk", ".cache"])
def test_a_link_to_where_others_may_write_is_not_followed(place: Place, linked: str) -> None:
    place.plant(place.library)
    link, target = place.home / linked, place.work / "shared"
    link.rename(target)
    link.symlink_to(target)
    target.chmod(0o777)
    assert_not_run(place, f"{target}: others may write to it")


@needs_root
def test_a_link_of_another_user_is_not_followed(place: Place) -> None:
    place.plant(place.library)
    place.cache.rename(place.work / "moved")
    place.cache.symlink_to(place.work / "moved")
    os.lchown(place.cache, OTHER, OTHER)
    assert_not_run(place, f"{place.cache}: belongs to user {OTHER}")


def test_a_link_to_a_folder_of_the_user_is_followed(place: Place) -> None:
    """Such a link may lead from a small home to a large file system."""
    place.cache.parent.rename(place.work / "moved")
    place.cache.parent.symlink_to(Path("..", place.work.name, "moved"))
    made = place.library.stat().st_ino
    assert place.ask() == ("42", [])
    assert place.library.stat().st_ino == made


@pytest.mark.parametrize("target", ["nowhere", ".cache"])
def test_a_link_that_leads_nowhere_is_said(place: Place, target: str) -> None:
    shutil.rmtree(place.cache.parent)
    place.cache.parent.symlink_to(target)
    answer, (line,) = place.ask()
    assert answer == "42"
    assert str(place.cache.parent) in line


def test_what_was_checked_is_loaded(place: Place) -> None:
    place.plant(place.work / "planted.so")
    names = f"HOSTILE = {str(place.work / 'planted.so')!r}\nPATH = {str(place.library)!r}\n"
    assert place.ask(names + SWAP + CALL) == ("42", [])


def test_a_container_knows_no_other_users(place: Place) -> None:
    """There, folders of the host's root seem to be nobody's."""
    if os.geteuid() == 0:
        os.chown(place.home, OTHER, OTHER)
    made = place.library.stat().st_ino
    assert place.ask_apart("") == ("42", [])
    assert place.library.stat().st_ino == made
