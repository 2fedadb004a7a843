"""
Reading recordings: megabytes of JSON a second and peak memory, against ``json.load`` and HolisticTraceAnalysis.

Each reading is a process of its own, one after the other; a limit on its memory keeps the machine alive. The large
recording is made of a real one, its events repeated with their times and correlations moved on.

    make bench-read ARGS="--size 1000 --hta PYTHON"

PYTHON is that of an environment with HolisticTraceAnalysis, which needs one of its own (``BENCH_HTA``).
"""

import argparse
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import psutil

from stepscope_sidecar.artifacts.pieces import Pieces
from tests.bench.machine import describe, table

DATA = Path(__file__).parents[2].parent / "shared" / "data"
"""Recordings of many profilers, not part of the repository."""

SOURCE = "kineto/hta/a100_2gpu_rank0_nccl.json.gz"
"""What the large recording is made of: two steps of training on an A100, with every kind of event but Python's."""

FILES = (
    SOURCE,
    "kineto/hta/v100_ns_resolution_rank-0.pt.trace.json.gz",
    "kineto/tracelens/h100_qwen1.5_0.5b_torch2.6.json.gz",
    "kineto/kineto_samples/toplevel_list_resnet50_2020-12_worker0.pt.trace.json.gz",
    "ascend/text_level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
)

SIZE_MB = 1000
"""The size that the aim is stated for."""

ROUNDS = 3
"""Of the recorded files, which take a second; the best counts. The large one is read once."""

AIM_RATIO, AIM_MB = 3.0, 500

COMMON = """
import json, re, resource, sys, time
path, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
{imports}
began, used = time.perf_counter(), time.process_time()
{read}
took = [time.perf_counter() - began, time.process_time() - used]
peak = int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
print(json.dumps([count, *took, peak]))
"""

READERS = {
    "stepscope": ("from stepscope_sidecar import traces", "found = traces.open(path); count = len(found)"),
    "json.load": (
        "import gzip; file = (gzip.open if path.endswith('gz') else open)(path, 'rb')",
        "found = json.load(file); count = len(found)",
    ),
    "HTA": (
        "from hta.common.trace_parser import parse_trace_dataframe; from hta.configs.parser_config import ParserConfig",
        "meta, frame, symbols = parse_trace_dataframe(path, ParserConfig.get_default_cfg()); count = len(frame)",
    ),
}
"""
What is imported before the clock starts, and what is timed: the events as a table, a tree of objects, a table. Of HTA
that is the least that it does; it goes on to link and align the events of all ranks.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """
    How one reading went; ``trouble`` if it did not.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak: int = 0
    events: int = 0
    trouble: str = ""


def repeated(source: bytes, path: Path, *, size: int) -> None:
    """
    Write the recording ``source`` to ``path`` with its events repeated until they are ``size`` bytes.
    """
    pieces = Pieces(io.BytesIO(source))
    events = b",".join(piece.text for piece in pieces).decode()
    number = re.compile(r'("(?:ts|correlation|External id|id)": )(\d+(?:\.\d+)?)')
    parts, ids, times, last = [], [], [], 0
    for found in number.finditer(events):
        parts.append(events[last : found.end(1)])
        timed = "." in found[2]
        times.append(int(found[2].replace(".", "")) if timed else 0)
        ids.append(0 if timed else int(found[2]))
        last = found.end()
    parts.append(events[last:])
    length = max(times) - min(one for one in times if one)
    step = max(ids) + 1
    with path.open("w") as file:
        file.write(pieces.frame.head.decode())
        written, turn = 0, 0
        while written < size:
            moved = [
                f"{(one + turn * length) // 1000}.{(one + turn * length) % 1000:03d}"
                if one
                else str(told + turn * step)
                for one, told in zip(times, ids, strict=True)
            ]
            copy = "".join(word for pair in zip(parts, [*moved, ""], strict=True) for word in pair)
            file.write(("," if turn else "") + copy)
            written += len(copy)
            turn += 1
        file.write("\n]" + pieces.frame.tail.decode())


def reading(python: str, reader: str, path: Path, *, limit: int, rounds: int) -> Reading:
    """
    The best of some readings of ``path``.
    """
    if not python:
        return Reading(trouble="absent")
    imports, read = READERS[reader]
    code = COMMON.format(imports=imports, read=read)
    best = Reading(trouble="never read")
    for _ in range(rounds):
        done = subprocess.run([python, "-c", code, str(path), str(limit)], capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
            full = "MemoryError" in done.stderr or done.returncode in {-6, -9}
            return Reading(trouble=f"more than {limit / 1e9:.0f} GB" if full else last[:60])
        count, seconds, cpu, peak = json.loads(done.stdout.strip().splitlines()[-1])
        if best.trouble or cpu < best.cpu_seconds:
            best = Reading(seconds=seconds, cpu_seconds=cpu, peak=peak, events=count)
    return best


def row(path: Path, name: str, readings: dict[str, Reading]) -> tuple[str, ...]:
    """
    One line of the table.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        size = 0
        while chunk := file.read(1 << 22):
            size += len(chunk)
    ours = readings["stepscope"]
    cells = [name[-44:], f"{size / 1e6:.1f}"]
    for reader, one in readings.items():
        if one.trouble:
            cells += [one.trouble, "", "" if reader == "stepscope" else "-"]
            continue
        cells += [f"{size / one.seconds / 1e6:.0f}", f"{one.peak / 1e6:.0f}"]
        cells.append(f"{one.events}" if reader == "stepscope" else f"{one.cpu_seconds / ours.cpu_seconds:.1f}x")
    return tuple(cells)


def main(arguments: list[str]) -> int:
    """
    Measure, print, and say whether the aims are met.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=SIZE_MB, help="megabytes of the large recording")
    parser.add_argument("--hta", default=os.environ.get("BENCH_HTA", ""), help="Python of HTA's environment")
    parser.add_argument("--limit", type=float, default=0.0, help="gigabytes that one reading may take")
    chosen = parser.parse_args(arguments)
    limit = int(chosen.limit * 1e9) or psutil.virtual_memory().available // 2
    if not (DATA / SOURCE).is_file():
        sys.stdout.write(f"no recordings in {DATA}: nothing to read\n")
        return 0
    pythons = {"stepscope": sys.executable, "json.load": sys.executable, "HTA": chosen.hta}
    theirs_too = ("json.load MB/s", "peak MB", "CPU", "HTA MB/s", "peak MB", "CPU")
    rows: list[tuple[str, ...]] = [("recording", "MB", "MB/s", "peak MB", "events", *theirs_too)]
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "repeated.json"
        repeated(gzip.decompress((DATA / SOURCE).read_bytes()), large, size=chosen.size * 1_000_000)
        paths = {**{name: DATA / name for name in FILES}, f"{chosen.size} MB of the first": large}
        for name, path in paths.items():
            rounds = 1 if path == large else ROUNDS
            readings = {
                reader: reading(python, reader, path, limit=limit, rounds=rounds) for reader, python in pythons.items()
            }
            rows.append(row(path, name, readings))
            sys.stderr.write(f"{rows[-1]}\n")
    machine = describe("msgspec", "numpy", "orjson")
    note = f"{machine}; HolisticTraceAnalysis {_version(chosen.hta)}; limit {limit / 1e9:.1f} GB"
    sys.stdout.write(table("Reading recordings; CPU: time on the CPU as a multiple of ours", rows, note=note))
    ours, theirs = readings["stepscope"], readings["HTA"]
    peak = ours.peak / 1e6
    sys.stdout.write(f"aim: at most {AIM_MB} MB for 1000 MB: {peak:.0f} MB for {chosen.size} MB\n")
    told = theirs.trouble or f"{theirs.cpu_seconds / ours.cpu_seconds:.1f} times"
    sys.stdout.write(f"aim: {AIM_RATIO:.0f} times HolisticTraceAnalysis' speed: {told}\n")
    return int(bool(ours.trouble) or peak > AIM_MB)


def _version(python: str) -> str:
    if not python:
        return "absent (name its Python with --hta or BENCH_HTA)"
    code = "from importlib.metadata import version as of; print(of('HolisticTraceAnalysis'), 'pandas', of('pandas'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "absent"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
