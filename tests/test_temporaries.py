"""What a killed writer leaves behind is cleared by the next; links, permissions and devices are left as they are."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cavia
from cavia import locking
from cavia.temporaries import HOUR, temporary
from cavia.tensor_file import replacing, write_atomically


def leftover(target, content=b"half", digits="0123456789ab"):
    """As a writer leaves it that was killed."""
    path = target.with_name(f".{target.name}.{digits}.part")
    path.write_bytes(content)
    return path


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_killed_writer_left_is_cleared_by_the_next_and_nothing_else(tmp_path):
    target = tmp_path / "model.cavia"
    dead = leftover(target)
    others = [leftover(tmp_path / "model.cavia2"), tmp_path / ".model.cavia.original", tmp_path / ".model.cavia.part"]
    for other in others:
        other.touch()
    write_atomically(target, b"whole")
    assert target.read_bytes() == b"whole"
    assert not dead.exists()
    assert all(other.exists() for other in others)


def test_what_another_is_writing_is_left_to_it(tmp_path):
    target = tmp_path / "model.cavia"
    with replacing(target) as slow:
        slow.write(b"slow")
        write_atomically(target, b"quick")
        assert target.read_bytes() == b"quick"
    assert target.read_bytes() == b"slow"
    assert [path.name for path in tmp_path.iterdir()] == ["model.cavia"]


@pytest.mark.slow
def test_a_writer_that_was_killed_holds_no_lock(tmp_path):
    code = """if True:
        import os, sys
        from pathlib import Path
        from cavia.tensor_file import replacing
        with replacing(Path(sys.argv[1])) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), 9)"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_atomically(tmp_path / "a", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_folders_are_cleared_too(tmp_path):
    target = tmp_path / "cache"
    dead = target.with_name(".cache.0123456789ab.part")
    (dead / "inner").mkdir(parents=True)
    with temporary(target, folder=True) as folder, temporary(target, folder=True) as other:
        assert folder.is_dir()
        assert other.is_dir()
        assert not dead.exists()
        folder.rename(target)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_where_locks_do_not_outlast_a_rename_only_what_is_old_is_cleared(tmp_path, monkeypatch):
    original = locking._module
    monkeypatch.setattr(locking, "_module", lambda name: None if name in ("fcntl", "msvcrt") else original(name))
    target = tmp_path / "a"
    new, old = leftover(target), leftover(target, digits="ba9876543210")
    os.utime(old, (time.time() - 2 * HOUR,) * 2)
    write_atomically(target, b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "a"]


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_have_the_permissions_that_the_user_chose(tmp_path, umask, expected):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "new", b"")
        cavia.CAVIA(cavia.MLP(1, 1), "mse").save(tmp_path / "model.cavia")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == mode(tmp_path / "model.cavia") == expected


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o640)
    write_atomically(tmp_path / "a", b"new")
    assert mode(tmp_path / "a") == 0o640


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/file")
    for content in (b"made through the link", b"replaced through the link"):
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "disk" / "file").read_bytes() == content
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["file"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(cavia.CaviaError, match=r"cannot write .*loop: Too many levels of symbolic links"):
        write_atomically(tmp_path / "loop", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_device_is_written_to_and_stays_one():
    write_atomically(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(cavia.CaviaError, match="cannot write /dev/full: No space left on device"):
        write_atomically(Path("/dev/full"), b"content")


def test_names_of_any_length_that_the_system_allows(tmp_path):
    path = tmp_path / ("ü" * 120)  # 240 bytes
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("path", ["a\0b", "", b"bytes", None, 3, "x" * 300, "\ud800"])
def test_what_no_file_can_be_called_is_one_line(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    learner = cavia.CAVIA(cavia.MLP(1, 1), "mse")
    for use in (
        learner.save,
        cavia.load,
        lambda path: cavia.ContextStore(path, "version"),
        cavia.RunFolder,
        lambda path: cavia.fit(learner, cavia.Sine(), 1, run_dir=path, progress=False),
    ):
        if path is None and use is not learner.save:
            continue
        with pytest.raises(cavia.CaviaError, match=r"path must be|run_dir must be"):
            use(path)
    assert not list(tmp_path.iterdir())
