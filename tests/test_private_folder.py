"""The folder of a cache: whose it is, what is read from it, and what is left behind."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.private_folder import ABANDONED, PrivateFolder
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import model, node

NAME = "0" * 64 + ".kept"
OTHER = "1" * 64 + ".kept"
CONTENT = bytes(range(256)) * 8

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no modes and no owners")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)


@pytest.fixture
def umask() -> Iterator[None]:
    """The one that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- whose it is ----------------------------------------------------------------------------------


@posix
@pytest.mark.usefixtures("umask")
def test_folders_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path / "deep" / "cache")
    folder.write(NAME, CONTENT)
    assert mode(tmp_path / "deep") == mode(folder.path) == 0o700
    assert mode(folder.path / NAME) == 0o600


@posix
@pytest.mark.parametrize("writable", [0o770, 0o707, 0o777, 0o1777, 0o720])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, writable: int) -> None:
    folder = PrivateFolder(tmp_path / "cache")
    folder.write(NAME, CONTENT)
    folder.path.chmod(writable)
    with pytest.raises(InvalidInput, match=r"can be written by others .* run `chmod 700`"):
        PrivateFolder(folder.path)
    # Neither is it read or written if that comes later.
    assert folder.read(NAME) is None
    folder.write(OTHER, CONTENT)
    assert [path.name for path in folder.path.iterdir()] == [NAME]
    folder.path.chmod(0o755)
    assert PrivateFolder(folder.path).read(NAME) == CONTENT


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(InvalidInput, match=r"belongs to another user \(12345\).*another folder"):
        PrivateFolder(tmp_path)


@posix
def test_a_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(InvalidInput, match="symbolic link to 'real'"):
        PrivateFolder(tmp_path / "link")
    assert PrivateFolder(tmp_path / "link" / "inner").path.is_dir()


@pytest.mark.parametrize(
    "path", [5, None, b"bytes", "", "a\0b", "\ud800", "x" * 5000, "~nobody-has-this-name/x", ["a"]]
)
def test_what_is_no_path_is_refused(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="cache"):
        PrivateFolder(path)


def test_what_is_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="is not a folder that can be used"):
            PrivateFolder(path)


def test_many_may_make_it_at_once(tmp_path: Path) -> None:
    barrier, failures = threading.Barrier(8), []

    def make(path: Path) -> None:
        barrier.wait()
        try:
            PrivateFolder(path).write(NAME, CONTENT)
        except InvalidInput as error:
            failures.append(error)

    for turn in range(20):
        path = tmp_path / str(turn) / "deep" / "cache"
        threads = [threading.Thread(target=make, args=(path,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [file.name for file in path.iterdir()] == [NAME]
    assert not failures


# -- what is read ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> PrivateFolder:
    made = PrivateFolder(tmp_path / "cache")
    made.write(NAME, CONTENT)
    return made


def test_what_is_damaged_is_gone_and_heals(folder: PrivateFolder) -> None:
    file = folder.path / NAME
    whole = file.read_bytes()
    flipped = [
        whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :]
        for i in [*range(0, len(CONTENT), 97), *range(len(CONTENT), len(whole))]
    ]
    cut = [whole[:-1], whole[:9], b"", whole[: len(whole) // 2], whole[1:]]
    longer = [whole + b"\0", whole * 2, b"\0" + whole]
    for damaged in (*flipped, *cut, *longer):
        file.write_bytes(damaged)
        assert folder.read(NAME) is None
        assert not file.exists()
    folder.write(NAME, CONTENT)
    assert folder.read(NAME) == CONTENT
    assert file.read_bytes() == whole


def test_an_entry_holds_under_its_own_name_alone(folder: PrivateFolder) -> None:
    (folder.path / NAME).rename(folder.path / OTHER)
    assert folder.read(OTHER) is None


@posix
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "socket", "device"])
def test_what_is_no_file_is_never_read(folder: PrivateFolder, kind: str, tmp_path: Path) -> None:
    file = folder.path / NAME
    kept = tmp_path / "kept"
    file.rename(kept)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "link":
        file.symlink_to(kept)
    elif kind == "socket":
        here = os.open(folder.path, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{NAME}")  # Its own path may be too long.
        os.close(here)
    else:
        try:
            os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root makes devices")
    assert folder.read(NAME) is None
    folder.write(NAME, CONTENT)
    assert folder.read(NAME) == CONTENT
    assert file.is_file()
    assert not file.is_symlink()


@posix
def test_a_file_that_others_could_have_written_is_never_read(folder: PrivateFolder) -> None:
    (folder.path / NAME).chmod(0o620)
    assert folder.read(NAME) is None


@as_root
def test_a_file_of_another_user_is_never_read(folder: PrivateFolder) -> None:
    os.chown(folder.path / NAME, 12345, 12345)
    assert folder.read(NAME) is None


# -- what is left behind --------------------------------------------------------------------------

LIMITED = """
import resource, sys
from sardonyx.backends.private_folder import PrivateFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = PrivateFolder(sys.argv[1])
folder.write("0" * 64 + ".kept", bytes(2000))
print(folder.read("0" * 64 + ".kept"))
"""


@posix
def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run = [sys.executable, "-c", LIMITED, str(tmp_path / "cache")]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert said == "None\n"
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_write_that_is_interrupted_leaves_nothing(
    folder: PrivateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        folder.write(OTHER, CONTENT)
    assert [file.name for file in folder.path.iterdir()] == [NAME]


def test_what_killed_processes_left_goes_after_a_while(folder: PrivateFolder) -> None:
    old, fresh = (folder.path / f".{NAME}.{i:016x}.unfinished" for i in range(2))
    others = folder.path / "notes.unfinished", folder.path / ".bashrc"
    for file in (old, fresh, *others):
        file.write_bytes(b"half")
        if file != fresh:
            os.utime(file, (time.time() - 2 * ABANDONED,) * 2)
    folder.write(OTHER, CONTENT)
    kept = {file.name for file in folder.path.iterdir()}
    assert kept == {NAME, OTHER, fresh.name, *(file.name for file in others)}


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path, most_bytes=3500)
    (tmp_path / "of people").write_bytes(bytes(5000))
    names = [f"{i:064x}.xla" for i in range(5)]
    for name in names[:3]:
        folder.write(name, bytes(1000))
        time.sleep(0.01)
    assert folder.read(names[0]) == bytes(1000)
    folder.write(names[3], bytes(1000))
    assert {name for name in names if (tmp_path / name).exists()} == {names[0], *names[2:4]}
    folder.write(names[4], bytes(3500))
    assert not (tmp_path / names[4]).exists()
    assert (tmp_path / "of people").exists()


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="needs another user")
def test_a_folder_that_can_only_be_read_is_read(folder: PrivateFolder) -> None:
    """Root can write everywhere, so that another user, who is trusted by nobody, reads here."""
    before = (folder.path / NAME).stat().st_mtime_ns
    for path in (folder.path, *folder.path.parents):
        if path.stat().st_uid == os.geteuid() and mode(path) == 0o700:
            path.chmod(0o755)
    (folder.path / NAME).chmod(0o644)
    code = "from sardonyx.backends.private_folder import PrivateFolder as F; import sys\n"
    code += "import os; os.setuid(12345); f = F(sys.argv[1]); f.write('1' * 64 + '.kept', b'x')\n"
    code += f"print(len(f.read({NAME!r})))"
    run = [sys.executable, "-c", code, str(folder.path)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert int(said) == len(CONTENT)
    assert [file.name for file in folder.path.iterdir()] == [NAME]
    assert (folder.path / NAME).stat().st_mtime_ns == before


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(InvalidInput, match="No space left on device"):
        PrivateFolder(tmp_path / "cache")


# -- of a model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [5, "", b"bytes"])
def test_a_model_has_no_cache_there(path: Any, xp: Backend) -> None:
    proto = model([node("Neg", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(InvalidInput, match="cache"):
        sardonyx.load(proto, backend=xp, cache=path)


@posix
def test_calls_go_on_whatever_happens_to_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    proto = model([node("Neg", ["x"], ["y"])], ["x"], ["y"])
    loaded = sardonyx.load(proto, backend="jax", cache=folder)
    shutil.rmtree(folder)
    assert loaded(np.ones(2, np.float32)).tolist() == [-1, -1]
    assert mode(folder) == 0o700
    folder.chmod(0o777)
    assert loaded(np.ones(3, np.float32)).tolist() == [-1, -1, -1]
