"""
Being the one sidecar: lock, folders, what is written down, the STOP file, listening sockets.
"""

import fcntl
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import ids, wire
from stepscope.errors import ConfigurationError
from stepscope.settings import Settings, read
from stepscope_sidecar import lifecycle, listen
from stepscope_sidecar.processes import Process
from stepscope_sidecar.surroundings import Disk, alive, left_behind, read_record
from tests.unit.sidecar.stored import listed

from .rig import closed, register


def _settings(folder: Path, **more: str) -> Settings:
    return read({"STEPSCOPE_DIR": str(folder), "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1", **more})


def test_one_of_two_gets_the_lock(tmp_path: Path) -> None:
    """
    The other is told that it is held, until the first lets go.
    """
    path = tmp_path / "s" / "control.sock"
    first = lifecycle.acquire(path)
    assert first is not None

    assert lifecycle.acquire(path) is None
    first.release()
    second = lifecycle.acquire(path)
    assert second is not None
    second.release()


def test_the_folder_is_for_this_user_and_an_old_socket_goes(tmp_path: Path) -> None:
    """
    0700, and whoever holds the lock may remove what a killed sidecar left.
    """
    path = tmp_path / "s" / "control.sock"
    path.parent.mkdir(mode=0o700)
    path.touch()
    lock = lifecycle.acquire(path)
    assert lock is not None
    gone = not path.exists()
    mode = path.with_name("control.sock.lock").stat().st_mode & 0o777
    lock.release()

    assert gone
    assert (0o700, 0o600) == (path.parent.stat().st_mode & 0o777, mode)


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    """
    Neither the socket nor the lock's file, unless they are somebody else's by now.
    """
    path = tmp_path / "s" / "control.sock"
    lock = lifecycle.acquire(path)
    assert lock is not None
    path.touch()
    lock.release()
    left = listed(path.parent)
    robbed = lifecycle.acquire(path)
    path.with_name("control.sock.lock").unlink()
    other = lifecycle.acquire(path)
    assert robbed is not None
    assert other is not None
    path.touch()
    robbed.release()

    assert [] == left
    assert ["control.sock", "control.sock.lock"] == listed(path.parent)
    other.release()


def test_a_lock_of_a_file_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The holder removes the file after another has opened it: that one locks the file that is there then.
    """
    path = tmp_path / "s" / "control.sock"
    first = lifecycle.acquire(path)
    assert first is not None
    flock = fcntl.flock
    calls: list[int] = []

    def late(handle: int, operation: int) -> None:
        if not calls:
            first.release()
        calls.append(os.fstat(handle).st_nlink)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    second = lifecycle.acquire(path)
    assert second is not None
    third = lifecycle.acquire(path)

    assert [0, 1] == calls[:2]
    assert third is None
    second.release()


def test_only_one_holds_the_lock_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However taking, letting go, removing and sweeping fall together.
    """
    monkeypatch.setattr(lifecycle, "PAUSE", 0.0)
    paths = [tmp_path / "s" / "a.sock", tmp_path / "s" / "b.sock"]
    held: dict[Path, int] = dict.fromkeys(paths, 0)
    most: list[int] = []

    def work(path: Path) -> None:
        for _ in range(150):
            lock = lifecycle.acquire(path, sweep=True)
            if lock is not None:
                held[path] += 1
                most.append(held[path])
                held[path] -= 1
                lock.release()

    threads = [threading.Thread(target=work, args=(path,)) for path in paths * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert {1} == set(most)
    assert [] == listed(tmp_path / "s")


def test_what_killed_sidecars_left_is_swept(tmp_path: Path) -> None:
    """
    Where asked for, and only what nobody holds: a folder that a person named may hold other programs' files.
    """
    folder = tmp_path / "s"
    alive = lifecycle.acquire(folder / "alive.sock")
    assert alive is not None
    for name in ("dead.sock", "dead.sock.lock", "alive.sock", "other.lock"):
        (folder / name).touch()
    first = lifecycle.acquire(folder / "one.sock")
    assert first is not None
    before = listed(folder)
    second = lifecycle.acquire(folder / "two.sock", sweep=True)
    assert second is not None

    assert {"dead.sock", "dead.sock.lock"} == {*before, "two.sock.lock"} - {*listed(folder)}
    for lock in (alive, first, second):
        lock.release()
    assert ["other.lock"] == listed(folder)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """
    They could put a socket of theirs in the place of ours.
    """
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(ConfigurationError, match="others can write"):
        lifecycle.acquire(folder / "control.sock")


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """
    The kernel's limit, said before anything is made.
    """
    with pytest.raises(ConfigurationError, match="longer than 107"):
        lifecycle.acquire(tmp_path / ("x" * 100) / "control.sock")


def test_latest_points_to_the_newest_attempt(tmp_path: Path) -> None:
    """
    Relative, so that the folder can be moved; replaced, never missing.
    """
    for attempt in ("a1", "a2"):
        settings = _settings(tmp_path, STEPSCOPE_ATTEMPT=attempt)
        lifecycle.prepare(settings)
        lifecycle.lead(settings.attempt_folder)

    assert Path("run-a2") == (tmp_path / "latest").readlink()
    assert (tmp_path / "run-a1").is_dir()


def test_an_attempt_that_does_not_listen_yet_leaves_latest_alone(tmp_path: Path) -> None:
    """
    Its ports may turn out to be taken.
    """
    lifecycle.lead(tmp_path / "run-a1")
    lifecycle.prepare(_settings(tmp_path, STEPSCOPE_ATTEMPT="a2"))

    assert Path("run-a1") == (tmp_path / "latest").readlink()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """
    A file in its place, for example.
    """
    (tmp_path / "runs").touch()

    with pytest.raises(ConfigurationError, match="STEPSCOPE_DIR="):
        lifecycle.prepare(_settings(tmp_path / "runs"))


def test_a_restart_finds_the_former_port(tmp_path: Path) -> None:
    """
    Of the same host only; nothing where there is no file or another host.
    """
    before = lifecycle.former_port(tmp_path, "http", "127.0.0.1")
    lifecycle.announce(tmp_path, {"http": "http://127.0.0.1:8321", "otlp_grpc": "127.0.0.1:4317", "pid": 1})

    assert 0 == before
    assert 8321 == lifecycle.former_port(tmp_path, "http", "127.0.0.1")
    assert 4317 == lifecycle.former_port(tmp_path, "otlp_grpc", "127.0.0.1")
    assert 0 == lifecycle.former_port(tmp_path, "http", "10.0.0.1")
    assert ["sidecar.json"] == [path.name for path in tmp_path.iterdir()]


def test_a_stop_file_counts_unless_a_later_order_overrides_it(tmp_path: Path) -> None:
    """
    Its time against that of the last order.
    """
    assert not lifecycle.stop_asked(tmp_path, since_unix_ns=0)
    (tmp_path / "STOP").touch()
    os.utime(tmp_path / "STOP", ns=(1000, 1000))

    assert lifecycle.stop_asked(tmp_path, since_unix_ns=0)
    assert not lifecycle.stop_asked(tmp_path, since_unix_ns=2000)


def test_the_former_port_is_taken_if_it_is_free() -> None:
    """
    Else any free one; and a port that was set is a port that must be had.
    """
    first = listen.tcp("STEPSCOPE_HTTP", ("127.0.0.1", 0))
    port = first.getsockname()[1]
    other = listen.tcp("STEPSCOPE_HTTP", ("127.0.0.1", 0), former=port)
    with first, other:
        assert port != other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"STEPSCOPE_HTTP=127.0.0.1:{port}"):
            listen.tcp("STEPSCOPE_HTTP", ("127.0.0.1", port))
    again = listen.tcp("STEPSCOPE_HTTP", ("127.0.0.1", 0), former=port)
    with again:
        assert f"127.0.0.1:{port}" == listen.shown(again)


def test_every_interface_is_shown_as_one_that_can_be_reached() -> None:
    """
    0.0.0.0 is no address to connect to.
    """
    with socket.create_server(("0.0.0.0", 0)) as listener:
        assert listen.shown(listener).startswith("127.0.0.1:")


def test_a_process_is_alive_if_pid_and_start_agree() -> None:
    """
    A reused pid is another process.
    """
    assert alive(os.getpid(), ids.process_start())
    assert not alive(os.getpid(), ids.process_start() + 1)
    assert not alive(2**22 + 1, 0)


def test_a_close_record_is_read_or_is_none(tmp_path: Path) -> None:
    """
    Not one of another window, not one whose artifact lies elsewhere, not a broken one.
    """
    path = tmp_path / "closed.json"
    path.write_bytes(wire.encode(closed("w")))
    found = [read_record(path), read_record(path, window="w"), read_record(path, window="another")]
    path.write_bytes(wire.encode(closed("w")).replace(b"recording.json", b"../../etc/x"))
    found.append(read_record(path))
    path.write_bytes(b"{")
    found += [read_record(path), read_record(tmp_path / "none")]

    assert [closed("w"), closed("w"), None, None, None, None] == found


def test_windows_that_nobody_wrote_down_are_found(tmp_path: Path) -> None:
    """
    Step, role, rank, pid and tool are in the folder's name; a role may have a dash.
    """
    settings = _settings(tmp_path)
    folder = settings.attempt_folder / "step-000005" / "re-ward-3-77" / "torch"
    folder.mkdir(parents=True)
    (folder / "closed.json").write_bytes(wire.encode(closed("w")))

    found = list(left_behind(settings, known={"other"}, node="here"))

    assert [(5, 4, "re-ward", 3, 77, "torch")] == [
        (item.step, item.param_version, item.role, item.rank, item.pid, item.tool) for item in found
    ]
    assert "run-a1/step-000005/re-ward-3-77/torch" == found[0].folder
    assert [] == list(left_behind(settings, known={"w"}, node="here"))


def test_windows_that_were_killed_with_their_sidecar_are_found(tmp_path: Path) -> None:
    """
    By the grant in their folder, where their process was registered; the close record says more than a grant.
    """
    settings = _settings(tmp_path)
    grant = wire.Grant(id=1, window="w", tool="torch", level="ops", folder="/x", caps=wire.Caps())
    for pid, files in {
        77: {"granted": wire.encode(grant)},
        78: {"granted": wire.encode(replace(grant, window="v"))},
        79: {"granted": b"{", "closed.json": b""},
        80: {"granted": wire.encode(replace(grant, window="u")), "closed.json": wire.encode(closed("u"))},
    }.items():
        folder = settings.attempt_folder / "step-000005" / f"trainer-0-{pid}" / "torch"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    known = [Process.of(register(pid), peer=pid, unix_ns=1) for pid in (77, 79, 80)]

    def found(*windows: str) -> list[tuple[str, int, int, str]]:
        left = left_behind(settings, known=windows, node="here", processes=known)
        return [(one.window, one.pid, one.process_start, one.level) for one in left]

    assert [("w", 77, 78, "ops"), ("u", 80, 81, "spans")] == found()
    assert [] == found("w", "u")


def test_the_disk_budget_counts_what_is_there(tmp_path: Path) -> None:
    """
    Recordings of this attempt, raw ones included; the store is not one.
    """
    settings = _settings(tmp_path, STEPSCOPE_DISK_BUDGET="1000")
    folder = settings.attempt_folder / "step-000005" / "trainer-0-1" / "torch"
    folder.mkdir(parents=True)
    (folder / "recording.json").write_bytes(b"x" * 300)
    (settings.attempt_folder / "stepscope.db").write_bytes(b"x" * 5000)
    disk = Disk(settings)
    before = (disk.used, disk.left)
    (folder / "more.json").write_bytes(b"x" * 900)
    disk.look()

    assert (300, 700) == before
    assert (1200, 0) == (disk.used, disk.left)
