"""
``make bench``: every measurement in a process of its own, one table after the other.

``make bench ARGS="span ingest"`` runs the named ones only.
"""

import subprocess
import sys
from pathlib import Path


def main(chosen: list[str]) -> int:
    """
    Run the chosen measurements (default: all) and return how many failed.
    """
    found = {path.stem.removeprefix("bench_"): path for path in sorted(Path(__file__).parent.glob("bench_*.py"))}
    unknown = [name for name in chosen if name not in found]
    if unknown:
        sys.stderr.write(f"no measurement named {', '.join(unknown)}; there are {', '.join(found)}\n")
        return 2
    failed = 0
    for name, path in found.items():
        if not chosen or name in chosen:
            failed += subprocess.run([sys.executable, str(path)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
