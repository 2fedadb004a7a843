"""
How many series there are: as many after 10,000 steps as after a few, and each from before its first event on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from prometheus_client import parser

from stepscope import wire
from stepscope.names import Incomplete, State
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.metrics import Exposition, Gauge
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT, body, span
from tests.unit.sidecar.ledgers import READY, RECORDING, WINDOW, ledger_of
from tests.unit.sidecar.rig import SPAN, TRACE
from tests.unit.sidecar.stored import WAIT, holds

STEPS = 10_000
A_REQUEST = 500
"""Steps whose spans come in one request."""

BETWEEN = 200
"""Steps from one recorded to the next."""


class NoGauges:
    """
    A sidecar that holds nothing.
    """

    def gauges(self) -> list[Gauge]:
        """
        None.
        """
        return []


def exposed(reader: Reader) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """
    Every series and its value, as Prometheus would read them.
    """
    body, _ = Exposition(totals=reader.totals, live=NoGauges()).render("")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


@contextmanager
def kept(path: Path) -> Iterator[Store]:
    """
    A store at ``path``, which is closed again.
    """
    store = Store.open(path, attempt=ATTEMPT)
    try:
        yield store
    finally:
        store.close()


def steps(store: Store, ledger: StoreLedger, first: int, last: int) -> None:
    """
    Have the run make these steps: spans, samples, and now and then a window.
    """
    for begin in range(first, last + 1, A_REQUEST):
        made = []
        for step in range(begin, min(begin + A_REQUEST, last + 1)):
            made.append(span(3 * step, step=step, name="rl.step.process", bucket=None, seconds=step % 50 / 10))
            made.append(span(3 * step + 1, step=step))
            if not step % BETWEEN:
                rows: list[list[str | int | None]] = [[f"s{step}", max(0, step - 3), step - 1, TRACE, SPAN]]
                ledger.samples(wire.Samples(step=step, mini_batch=0, param_version=step - 1, rows=rows))
                record(ledger, step)
        store.append(body(*made), len(made)).result(WAIT)


def record(ledger: StoreLedger, step: int) -> None:
    """
    A window of ``step``, which ends well or, each second time, lacks kernels.
    """
    asked, running, ready = (replace(item, window=f"w{step}", step=step) for item in (WINDOW, RECORDING, READY))
    if step // BETWEEN % 2:
        ready = replace(ready, complete=False, incomplete_reason=Incomplete.KERNELS_MISSING)
    ledger.window(asked, before=None)
    ledger.window(running, before=asked)
    ledger.window(ready, before=running)


def test_ten_thousand_steps_add_no_series(tmp_path: Path) -> None:
    """
    After all of them there are the series that there were after the first few hundred, with other values.
    """
    path = tmp_path / "s.db"
    with kept(path) as store, open_reader(path) as reader:
        ledger = ledger_of(store, tmp_path)

        def indexed(count: int) -> bool:
            key = ("stepscope_step_seconds_count", (("role", "trainer"),))
            return exposed(reader).get(key) == float(count)

        steps(store, ledger, 1, 2 * BETWEEN)
        assert holds(lambda: indexed(2 * BETWEEN))
        before = exposed(reader)
        steps(store, ledger, 2 * BETWEEN + 1, STEPS)
        assert holds(lambda: indexed(STEPS))
        after = exposed(reader)

    assert before.keys() == after.keys()
    assert float(STEPS) == after["stepscope_param_version", (("role", "trainer"),)] + 1
    windows = ("outcome", "ready"), ("role", "trainer"), ("tool", "torch")
    assert STEPS / BETWEEN == after["stepscope_windows_total", windows]
    incomplete = ("cause", "lost"), ("role", "trainer"), ("tool", "torch")
    assert STEPS / BETWEEN / 2 == after["stepscope_incomplete_recordings_total", incomplete]


def test_counters_are_there_before_their_first_event(tmp_path: Path) -> None:
    """
    What alerts ask the increase of is 0 from registration on: every outcome, cause and phase, and every reason.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger_of(store, tmp_path).tool("trainer", "torch")
    with open_reader(path) as reader:
        found = exposed(reader)

    zero = {dict(labels).get("outcome") for (name, labels), value in found.items() if not value}
    assert {state.value for state in State if state.final} | {None} == zero
    causes = {dict(labels)["cause"] for (name, labels) in found if name == "stepscope_incomplete_recordings_total"}
    assert {"asked", "lost"} == causes
    reasons = {dict(labels)["reason"] for (name, labels) in found if name == "stepscope_spans_dropped_total"}
    assert {"rejected", "outbox_full", "buffer_full"} <= reasons


def test_what_is_missing_is_known_after_a_restart(tmp_path: Path) -> None:
    """
    The last step's missing recordings are kept, and a role of which nobody is held has its gauges, at 0.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        ledger.missing({"trainer": 2})
        ledger.missing({"trainer": 1})
        steps(store, ledger, 1, 1)
    with kept(path), open_reader(path) as reader:
        assert holds(lambda: ("stepscope_processes", (("role", "trainer"),)) in exposed(reader))
        found = exposed(reader)

    assert 1.0 == found["stepscope_missing_ranks", (("role", "trainer"),)]
    assert 0.0 == found["stepscope_processes", (("role", "trainer"),)]
    assert 0.0 == found["stepscope_windows_open", (("role", "trainer"),)]
