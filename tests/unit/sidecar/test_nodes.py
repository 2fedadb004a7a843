"""
The upstream's side of reports: what is kept, who has vanished, who is believed, and what others see of it.
"""

from pathlib import Path

import pytest

from stepscope import wire
from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.nodes import VANISHED, usable
from stepscope_sidecar.pages import Others, Shown, run_page
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.roster import counted, window_objects
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.reporting import SHA, told
from tests.unit.sidecar.rig import Rig, closed, started
from tests.unit.sidecar.stored import put, window
from tests.unit.sidecar.upstreams import Kept


@pytest.fixture
def kept(store: Store) -> Kept:
    """
    A sidecar that nobody has reported to.
    """
    return Kept(store)


def test_reported_windows_are_kept_beside_our_own(kept: Kept, store: Store) -> None:
    """
    Later reports replace earlier ones; each row says its node and where its artifact lies.
    """
    put(store, window(5, node="n1", artifact="demo-1/step-000005/x.json.gz"))
    kept.take(told(5), told(6))
    kept.take(told(5, "ready", artifact="r-a/step-000005/y.json.gz", sha256=SHA))

    with open_reader(store.path) as reader:
        assert ["n1"] == [row.node for row in reader.windows()]
        found = window_objects(reader.windows(), reader.elsewhere(), directory=Path("/runs"))
        assert ["w6"] == [row.window for row in reader.elsewhere(step=6)]
    assert [("n1", "ready"), ("n2", "ready"), ("n2", "recording")] == [(row["node"], row["state"]) for row in found]
    assert ["/runs/demo-1/step-000005/x.json.gz", "stepscope://n2/r-a/step-000005/y.json.gz", ""] == [
        row["artifact"] for row in found
    ]


def test_a_node_changes_no_row_but_its_own(kept: Kept, store: Store) -> None:
    """
    A window of the same name on this node, or on a third one, stays what it was.
    """
    put(store, window(5, node="n1", window="w5"))
    kept.take(told(5, node="n3"), node="n3")
    kept.take(told(5, "failed"))

    with open_reader(store.path) as reader:
        assert ["ready"] == [row.state for row in reader.windows()]
    assert ["n2 w5 failed", "n3 w5 recording"] == sorted(kept.states())


def test_this_node_does_not_report_to_itself(kept: Kept) -> None:
    """
    Nor does another machine of the same name: whose windows are whose could not be told.
    """
    with pytest.raises(IntakeError, match="STEPSCOPE_NODE") as raised:
        kept.take(node="n1", run="demo", attempt=ATTEMPT)

    assert 409 == raised.value.status
    assert [] == kept.stand()


def test_a_node_is_alone_until_another_of_its_attempt_reports(kept: Kept) -> None:
    """
    Other runs that report to a common upstream are no nodes of this one. A restart changes nothing.
    """
    found = [kept.nodes.alone]
    kept.take()
    found.append(kept.nodes.alone)
    kept.take(run="demo", attempt=ATTEMPT)
    found.append(kept.nodes.alone)

    assert [True, True, False] == found
    assert not kept.restarted().alone


def test_ranks_of_other_nodes_are_not_missing_here(tmp_path: Path) -> None:
    """
    A sidecar that is not alone does not say of ranks that it never heard of that they never registered.
    """
    for alone, expected in ((True, ["never_registered"]), (False, [])):
        rig = Rig(tmp_path)
        process, link = rig.register(world_size=2)
        rig.controller.handle(process, wire.Version(step=5, param_version=4))
        identity = rig.open(process, link)
        rig.controller.handle(process, started(identity))
        rig.controller.handle(process, closed(identity))
        rig.done(identity)
        rig.controller.gone(process)
        found = rig.controller.census.count(
            rig.controller.processes, rig.controller.recordings.windows, rig.controller.plan.ranks, alone=alone
        )

        assert expected == [reason for *_, reason in found]


def test_open_windows_of_a_node_that_is_heard_no_more_are_lost(kept: Kept) -> None:
    """
    Final ones stay what they were; when it comes back, all is put right.
    """
    kept.take(told(4, "ready"), told(5))

    kept.later(VANISHED - 0.5)
    assert (["present"], ["n2 w4 ready", "n2 w5 recording"]) == (kept.stand(), kept.states())
    kept.later(1)
    assert (["vanished"], ["n2 w4 ready", "n2 w5 lost node_vanished"]) == (kept.stand(), kept.states())
    kept.take()
    assert (["present"], ["n2 w4 ready", "n2 w5 recording"]) == (kept.stand(), kept.states())
    kept.take(told(5, "ready", reason="boundary"))
    assert ["n2 w4 ready", "n2 w5 ready boundary"] == kept.states()
    kept.later(VANISHED)
    assert ["vanished"] == kept.stand()


def test_a_report_that_comes_late_changes_nothing(kept: Kept) -> None:
    """
    It is answered as if it were kept.
    """
    kept.take(told(5), instance="i1", sequence=1)
    kept.take(told(5, "ready"), told(6, "ready"), ending=True, instance="i1", sequence=2)
    late = [kept.take(told(5), told(7), instance="i1", sequence=at) for at in (1, 2)]

    assert [True, True] == [taken.late and taken.known for taken in late]
    assert (["ended"], ["n2 w5 ready", "n2 w6 ready"]) == (kept.stand(), kept.states())
    assert not kept.take(told(7), instance="i2", sequence=1).late
    assert kept.take(told(9), instance="i1", sequence=2).late
    assert not kept.take(told(10), instance="i2", sequence=2).late
    assert not kept.take(told(11)).late
    assert ["n2 w10 recording", "n2 w11 recording", "n2 w5 ready", "n2 w6 ready", "n2 w7 recording"] == sorted(
        kept.states()
    )


def test_two_living_sidecars_of_one_name_are_told_so(kept: Kept) -> None:
    """
    The one that came first is refused, since a restarted sidecar comes second; nothing of the two is mixed.
    """
    kept.take(told(5, "ready"), instance="i1", sequence=1)
    kept.take(told(6, "ready"), instance="i2", sequence=1)

    with pytest.raises(IntakeError, match="report as node n2; set STEPSCOPE_NODE") as refused:
        kept.take(told(7, "ready"), instance="i1", sequence=2)

    assert 423 == refused.value.status
    assert ["n2 w5 ready", "n2 w6 ready"] == sorted(kept.states())
    assert [str(refused.value)] == kept.nodes.troubles


def test_what_is_final_stays_final(kept: Kept) -> None:
    """
    Also for a restarted upstream, which knows no numbers of reports; one final state may follow another.
    """
    kept.take(told(5, "ready"), instance="i1", sequence=2)
    kept.restarted()
    kept.take(told(5), told(6), instance="i1", sequence=1)
    assert ["n2 w5 ready", "n2 w6 recording"] == kept.states()
    kept.take(told(5, "failed"), told(6, "ready"), instance="i1", sequence=3)

    assert ["n2 w5 failed", "n2 w6 ready"] == kept.states()


def test_a_node_that_has_ended_in_order_has_not_vanished(kept: Kept) -> None:
    """
    Its last report says so.
    """
    kept.take(told(5, "ready"), ending=True)
    kept.later(VANISHED)

    assert ["ended"] == kept.stand()


def test_a_restarted_upstream_knows_its_nodes_and_gives_them_time(kept: Kept) -> None:
    """
    Those that vanish while it is away are noticed 30 s after it is back, and those that had vanished stay so.
    """
    keeper = kept.take(told(5)).keeper
    kept.clocks.now += 3600 * 10**9
    kept.restarted()

    kept.later(VANISHED - 1)
    assert ["n2 w5 recording"] == kept.states()
    kept.later(1)
    assert ["n2 w5 lost node_vanished"] == kept.states()
    kept.restarted()
    kept.later(1)
    assert ["n2 w5 lost node_vanished"] == kept.states()
    assert keeper == kept.take().keeper


def test_another_store_has_another_keeper(kept: Kept, tmp_path: Path) -> None:
    """
    So that nodes notice.
    """
    other = Store.open(tmp_path / "other.db", attempt=ATTEMPT)
    try:
        assert kept.take().keeper != Kept(other).take().keeper
    finally:
        other.close()


@pytest.mark.parametrize(
    ("http", "peer", "expected"),
    [
        ("http://10.0.0.5:8321", "10.0.0.5", True),
        ("http://[fd00::5]:8321", "fd00::5", True),
        ("http://10.0.0.5:8321", "::ffff:10.0.0.5", True),
        ("http://127.0.0.1:8321", "127.0.0.1", True),
        ("http://127.0.0.1:8321", "10.0.0.5", False),
        ("http://169.254.169.254:80", "10.0.0.5", False),
        ("http://10.0.0.6:8321", "10.0.0.5", False),
        ("http://node5:8321", "10.0.0.5", False),
        ("https://10.0.0.5:8321", "10.0.0.5", False),
        ("file:///etc/passwd", "10.0.0.5", False),
        ("http://user@10.0.0.5:8321", "10.0.0.5", False),
        ("http://10.0.0.5:8321/x", "10.0.0.5", False),
        ("http://10.0.0.5:8321?x", "10.0.0.5", False),
        ("http://10.0.0.5", "10.0.0.5", False),
        ("http://10.0.0.5:99999", "10.0.0.5", False),
        ("", "10.0.0.5", False),
        ("http://10.0.0.5:8321", "testclient", False),
    ],
)
def test_a_node_is_asked_only_where_it_reported_from(http: str, peer: str, expected: bool) -> None:
    """
    Nobody can have this sidecar call a third machine, or this one's own services.
    """
    assert expected is usable(http, peer=peer)


def test_the_page_tells_of_nodes_clocks_and_windows(kept: Kept, store: Store) -> None:
    """
    Which node holds what, how far its clock is and how sure that is, and that it has vanished; nothing unescaped.
    """
    put(store, window(5, node="n1", artifact="demo-1/step-000005/x.json.gz"))
    artifact = "r-a/step-000005/trainer-1-7/torch/y.json.gz"
    kept.take(told(5, "ready", artifact=artifact, sha256=SHA, detail="<b>"), told(6))
    kept.later(VANISHED)
    with open_reader(store.path) as reader:
        others = Others(nodes=reader.nodes(), windows=reader.elsewhere(), counted=counted(reader.elsewhere()))
        page = run_page({"node": "n1"}, shown=Shown(windows=reader.windows()), estimates={}, others=others)

    for expected in (
        f'href="nodes/n2/artifacts/{artifact}"',
        'href="artifacts/demo-1/step-000005/x.json.gz"',
        "-2.0 ms ± 0.5 ms",
        "lost</span>: node_vanished",
        "vanished</span>",
        "1 ready, 1 lost",
        "&lt;b&gt;",
    ):
        assert expected in page
    alone = run_page({"node": "n1"}, shown=Shown(windows=[window(5)]), estimates={})
    assert "Nodes" not in alone
    assert ">node<" not in alone.replace("<dt>node<", "")


def test_a_store_of_a_former_release_has_no_other_nodes(kept: Kept, store: Store) -> None:
    """
    It can be read all the same.
    """

    def forget(connection: object) -> None:
        for statement in ("DROP INDEX node_windows_by_id", "DROP TABLE node_windows", "DROP TABLE nodes"):
            connection.execute(statement)  # type: ignore[attr-defined]

    store.submit(forget).result(10)

    with open_reader(store.path) as reader:
        assert ([], []) == (reader.elsewhere(), reader.nodes())
