"""
``make bench-windows``: the reference loop profiled four ways, and what of its steps is in the recordings.

No profiling; the logic of verl 0.9.1's fully-asynchronous mode, rebuilt; stepscope at level ``ops``; stepscope at level
``spans``; each with one and with four mini-batches per step. What really ran is known from markers around operators.
The exit code is 1 when a recording of stepscope's has anything in it that is not its step's, or lacks anything that is;
times are measured and printed, not judged.
"""

import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.machine import describe
from tests.bench.windows import report
from tests.bench.windows.outcome import Column, endings, run
from tests.bench.windows.setting import Setting, Way

MINI_BATCHES = (1, 4)
"""A mini-batch that is a step, and the number that verl sets by default."""

NOTE = """Times are medians over the selected steps, with the greatest in brackets; what the same calls take in other
steps is subtracted. Aims: 0 in every row of errors for stepscope; stall against verl's at most 0.05x at `spans` and
0.5x at `ops`. A window of verl's logic is one mini-batch, of stepscope's one step: hence stall per step, too."""


def main(arguments: list[str] | None = None) -> int:
    """
    Run all of it, print the table, and say what is wrong.
    """
    parser = ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--mini-batches", type=int, nargs="+", default=MINI_BATCHES, metavar="N")
    parser.add_argument("--ways", type=Way, nargs="+", default=list(Way), metavar="WAY", help=", ".join(Way))
    parser.add_argument("--no-endings", action="store_true", help="leave the runs about endings out")
    parser.add_argument("--keep", default="", metavar="DIR", help="leave what the runs wrote here")
    chosen = parser.parse_args(arguments)
    # By default the signal ends this process at once, and not the runs.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-windows-") as scratch:
        folder = Path(chosen.keep or scratch).absolute()
        settings = [
            Setting(way=way, mini_batches=mini_batches, folder=str(folder / f"{way}-{mini_batches}"))
            for mini_batches in chosen.mini_batches
            for way in chosen.ways
        ]
        wholes = [run(_said(setting)) for setting in settings]
        profiled = [] if chosen.no_endings else [each for each in settings if each.way is not Way.NONE]
        sys.stderr.write("endings\n")
        ended = dict(zip(profiled, endings(profiled, folder=folder), strict=True))
    found = [Column(whole=whole, endings=ended.get(whole.setting, {})) for whole in wholes]
    sys.stdout.write(f"\n{describe('torch', 'ray', 'stepscope')}\n{NOTE}\n\n{report.table(found)}\n\n")
    wrong = [f"{each.way}, {each.mini_batches}: {each.errors}" for each in found if each.way.ours and each.errors]
    sys.stdout.write("".join(f"wrong: {line}\n" for line in wrong))
    sys.stdout.write(f"{time.monotonic() - begun:.0f} s\n")
    return int(bool(wrong))


def _said(setting: Setting) -> Setting:
    sys.stderr.write(f"{setting.way}, {setting.mini_batches} mini-batches per step\n")
    return setting


if __name__ == "__main__":
    raise SystemExit(main())
