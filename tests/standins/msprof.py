"""
A stand-in for CANN's ``msprof --dynamic=on --pid``: its dialogue as documented, and the folders that it leaves.

No device is here. What it says is what the published sources of 5.1 (``STANDIN_MSPROF=`` unset) and of 9.1 (``pids``)
print; ``no_device`` and ``hang`` are two ways in which it fails.
"""

import os
import re
import signal
import sys
from pathlib import Path

OPTION = re.compile(r"--(dynamic|pid|output)=(.+)")

MODE = b"PROFILING_MODE=dynamic"


def say(text: str, *, end: str = "\n") -> None:
    """
    Print at once.
    """
    sys.stdout.write(text + end)
    sys.stdout.flush()


def connected(pid: str) -> bool:
    """
    Whether the process listens: it does when it was started in the mode for it.
    """
    try:
        return MODE in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def collect(output: Path, number: int) -> None:
    """
    Leave what one collection leaves.
    """
    folder = output / f"PROF_{number:06d}_20260101000000000_STANDIN"
    for name in ("device_0/data/stars_soc.data.0.slice_0", "host/data/unaging.api_event.data.slice_0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"stand-in" * 100)
    (folder / "host/sample.json").write_text("{}")


def main() -> int:
    """
    One session.
    """
    found = [OPTION.fullmatch(argument) for argument in sys.argv[1:]]
    options = {match[1]: match[2] for match in found if match is not None}
    if None in found or {"dynamic", "pid", "output"} != options.keys() or options["dynamic"] != "on":
        say("[ERROR] Argument is invalid.")
        return 1
    say("[INFO] Start profiling....")
    if not connected(options["pid"]):
        say("[ERROR] cannot connect to server, maybe server is closed")
        return 1
    way = os.environ.get("STANDIN_MSPROF", "")
    whom = f"for pid {options['pid']} " if way == "pids" else ""
    dots = "" if way == "pids" else "......"
    running, number = False, 0
    say("> ", end="")
    for line in sys.stdin:
        word = line.strip()
        if word == "start" and way == "no_device":
            say("[WARNING] dynamic profiling device has not been set up......")
        elif (word == "start") == running and word != "quit":
            say(f"[WARNING] dynamic profiling {'already started' if running else 'has not started'}......")
        elif word in {"start", "stop", "quit"}:
            if word == "stop" and way == "hang":
                signal.pause()
            running = word == "start"
            if word == "stop":
                number += 1
                collect(Path(options["output"]), number)
            say(f"dynamic profiling {whom}{word} success{dots}")
        if word == "quit":
            return 0
        say("> ", end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
