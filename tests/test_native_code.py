"""Compiled code where the user's cache, the compiler or the library cannot be used, or where
somebody else could have put it: that is not run.
"""

import os
import shutil
from pathlib import Path

import pytest

from bigtrk import native_code
from bigtrk.native_code import NATIVE
from tests.answers import CALL, NO_HOME, Answer, Place, finished

OTHER = 54321
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
# A compiler that fails as the file beside it says.
COMPILER = """#!/bin/sh
how=$(cat "$0.how" 2>/dev/null) || exec cc "$@"
echo "answer.c: note: it begins" >&2
echo "answer.c: error: $how" >&2
exit "$how"
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def kept(place: Place) -> Place:
    """One whose cache holds the library."""
    assert place.ask() == ("42", [])
    return place


def assert_made_apart(asked: Answer, why: str) -> None:
    (line,) = asked.said
    assert asked.answer == "42"
    assert line.startswith("bigtrk: warning: each process compiles the C code anew: ")
    assert why in line


def assert_plain(asked: Answer, why: str) -> None:
    (line,) = asked.said
    assert asked.answer == "plain"
    assert line.startswith("bigtrk: warning: everything works, but slower")
    assert why in line


def assert_not_run(place: Place, why: str) -> None:
    """Checks that what was planted is neither run nor replaced, and that the line says why."""
    planted = place.library.read_bytes()
    assert_made_apart(place.ask(), why)
    assert place.library.read_bytes() == planted


def test_a_library_is_made_once_for_its_user_alone(place: Place) -> None:
    place.home.chmod(0o1777)  # shared as /tmp is
    assert place.ask(umask=0) == ("42", [])
    made = place.library.stat()
    modes = [one.stat().st_mode & 0o777 for one in (place.library, place.cache, place.cache.parent)]
    assert modes == [0o600, 0o700, 0o700]
    assert place.ask(umask=0) == ("42", [])
    assert place.library.stat().st_ino == made.st_ino


def test_a_cache_that_cannot_be_made(place: Place) -> None:
    assert_made_apart(place.ask(NO_HOME + CALL), "has no home folder: set XDG_CACHE_HOME")
    place.cache.parent.touch()
    assert_made_apart(place.ask(), f"{place.cache.parent}: cannot be made (File exists); set XDG")


def test_a_read_only_home(place: Place) -> None:
    read_only = f"mount --bind {place.home} {place.home}; mount -o remount,bind,ro {place.home}"
    assert_made_apart(place.ask_apart(read_only), "Read-only file system")
    assert place.ask() == ("42", [])
    assert place.ask_apart(read_only) == ("42", [])


def test_a_full_disk_and_one_whose_files_may_not_be_run(place: Place) -> None:
    place.cache.parent.mkdir(mode=0o700)
    full = f"mount -t tmpfs -o size=4k,mode=700 tmpfs {place.cache.parent}"
    assert_made_apart(place.ask_apart(full), "No space left on device")
    noexec = "mount -t tmpfs -o noexec tmpfs"
    assert_made_apart(place.ask_apart(f"{noexec} {place.home}"), "is mounted noexec")
    everywhere = f"{noexec} {place.home}; {noexec} {place.temporary}"
    assert_plain(place.ask_apart(everywhere), "is mounted noexec")


def test_a_failed_compilation_is_tried_again(place: Place) -> None:
    compiler, state = place.work / "compiler", place.work / "compiler.how"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    state.write_text("1")
    assert_plain(place.ask(CC=str(compiler)), "cannot compile the C code (answer.c: error: 1")
    assert list(place.cache.iterdir()) == []
    state.unlink()
    assert place.ask(CC=str(compiler)) == ("42", [])


def test_a_compiler_is_a_command_with_arguments(place: Place) -> None:
    assert place.ask(CC="env cc -Wall") == ("42", [])
    for command in ("no-such-ccache cc", "'cc"):
        assert_plain(place.ask(CC=command), "no C compiler")


def test_the_first_rank_of_a_host_says_it_once(place: Place) -> None:
    twice = CALL + 'compiled("again", Path("answer.c"))\n'
    assert_plain(place.ask(twice, CC="no-such-cc", LOCAL_RANK="0"), "no C compiler")
    under_mpi = place.ask(twice, CC="no-such-cc", OMPI_COMM_WORLD_LOCAL_RANK="1", SLURM_LOCALID="0")
    assert under_mpi == ("plain", [])


def test_hosts_of_other_processors_have_a_library_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for flags in ("flags: avx2", "flags: avx2 avx512f", "flags: avx2"):
        monkeypatch.setattr(native_code, "cpu_info", lambda _, flags=flags: flags)
        found.add(native_code._key([], ["cc", NATIVE]))
    assert len(found) == 2


def test_a_library_that_was_cut_short_or_damaged_is_made_again(kept: Place) -> None:
    whole = kept.library.stat().st_size
    os.truncate(kept.library, whole // 2)
    assert kept.ask() == ("42", [])
    assert kept.library.stat().st_size == whole
    with kept.library.open("r+b") as file:
        file.write(bytes(64))
    ranks = [kept.start() for _ in range(4)]
    assert [finished(rank) for rank in ranks] == [("42", [])] * 4
    assert list(kept.cache.iterdir()) == [kept.library]


def test_the_working_folder_is_no_cache(kept: Place) -> None:
    planted = kept.work / "here" / "bigtrk" / kept.library.name
    planted.parent.mkdir(parents=True)
    kept.plant(planted)
    assert kept.ask(XDG_CACHE_HOME="here") == ("42", [])
    kept.library.unlink()
    assert kept.ask(XDG_CACHE_HOME="here", HOME="here").answer == "42"


def test_a_library_that_others_may_write_is_made_again(kept: Place) -> None:
    kept.plant(kept.library)
    kept.library.chmod(0o664)
    assert kept.ask() == ("42", [])
    assert kept.library.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_not_run(kept: Place) -> None:
    kept.plant(kept.library)
    os.chown(kept.library, OTHER, OTHER)
    assert kept.ask() == ("42", [])
    assert kept.library.stat().st_uid == 0
    kept.plant(kept.library)
    os.chown(kept.cache, OTHER, OTHER)
    assert_not_run(kept, f"{kept.cache}: belongs to user {OTHER}")


@pytest.mark.parametrize(("folder", "mode"), [(".cache/bigtrk", 0o1777), (".", 0o757)])
def test_a_cache_that_others_may_write_or_replace_is_not_used(
    kept: Place, folder: str, mode: int
) -> None:
    kept.plant(kept.library)
    place = kept.home / folder
    place.chmod(mode)
    assert_not_run(kept, f"{place}: others may write to it; chmod go-w {place}, or ")


def test_a_link_in_place_of_a_library_is_not_followed(kept: Place) -> None:
    elsewhere, path = kept.work / "planted.so", kept.library
    kept.plant(elsewhere)
    planted = elsewhere.read_bytes()
    path.unlink()
    path.symlink_to(elsewhere)
    assert kept.ask() == ("42", [])
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == planted


def test_a_link_to_a_folder_is_followed_where_nobody_else_may_write(kept: Place) -> None:
    """Such a link may lead from a small home to a large file system."""
    kept.cache.parent.rename(kept.work / "moved")
    kept.cache.parent.symlink_to(Path("..", kept.work.name, "moved"))
    made = kept.library.stat().st_ino
    assert kept.ask() == ("42", [])
    assert kept.library.stat().st_ino == made
    (kept.work / "moved").chmod(0o777)
    kept.plant(kept.library)
    assert_not_run(kept, f"{kept.work / 'moved'}: others may write to it")


def test_a_container_knows_no_other_users(kept: Place) -> None:
    """There, folders of the host's root seem to be nobody's."""
    if os.geteuid() == 0:
        os.chown(kept.home, OTHER, OTHER)
    made = kept.library.stat().st_ino
    assert kept.ask_apart("") == ("42", [])
    assert kept.library.stat().st_ino == made
