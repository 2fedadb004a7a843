"""
The page of a window with a device: every part of it, to the letter.
"""

from pathlib import Path

from stepscope_sidecar import sheet
from stepscope_sidecar.show import Against, Shown
from stepscope_sidecar.traces import Collective, Kind, Trace
from stepscope_sidecar.traces.difference import difference
from stepscope_sidecar.traces.summary import summarise
from stepscope_sidecar.traces.work import Work
from tests.unit.sidecar.stored import window
from tests.unit.sidecar.timelines import Timeline

US = 1000

PAGE = """\
step 8 (weights v7 in force, makes v8): trainer 0 (pid 7)
window      w-8-ready, ready, incomplete: gap_tail, 12.5% of it (gap_tail: 0.1 s)
recording   stepscope://n/x.json.gz (2.0 KiB, torch at level ops)
format      kineto
wall        100.00 us (the window), 9 events

device      busy 50.00 us (50.0%), idle 50.00 us (50.0%)
            compute 30.00 us (30.0%)
            communication 20.00 us (20.0%), 50.0% of it beside computing
            memory 10.00 us (10.0%), 0.0% of it beside computing or communication
launches    3 calls in 3.00 us
bound by    host
            device 0 was busy 50.0% of the time
            10.0% of the time in communication with no computing beside it
            idle with nothing asked of it 42.0%, with work asked for 8.0%, launch not recorded 0.0%
            4 of 4 pieces of work have their launch in the recording, and began 7.00 us after it (median)

kernels     2 names, 3 calls, 50.00 us
                time  share  calls  name
            30.00 us  60.0%      2  gemm
            20.00 us  40.0%      1  ncclDevKernel

operators   1 names, 1 calls, 5.00 us
               time   share  calls  name
            5.00 us  100.0%      1  aten::mm

collectives 1 calls
                time  calls  group  ranks  elements   type  name
            20.00 us      1     dp      2        64  Float  allreduce

spans       1 on the timeline; what is told of each is in no span inside it
                time    device  operators  spans  name
            40.00 us  50.00 us    5.00 us      1  train.update_actor
                   -  10.00 us       0 ns      -  in no span
            in no span: 10.00 us launched outside of spans

difference  to step 5 (weights v4 in force, makes v5), window w-5-ready
            per mini-batch: 2 then, 2 now
            noise is up to 1.25 times for kernels and 2 times for operators, or less than 1% of all
            then and now are the time of one mini-batch, disturbances left out; calls are of the whole recording
              what     then       now   calls      kind  name
             added        -  10.00 us  0 -> 1    kernel  ncclDevKernel
            slower  5.00 us  10.00 us  2 -> 2    kernel  gemm
             added        -   2.50 us  0 -> 1  operator  aten::mm"""


def _after() -> Trace:
    made = Timeline().mark("train.update_actor", 1, 0, 40 * US).operator("aten::mm", 5 * US, 10 * US)
    told = Collective(name="allreduce", elements_in=64, elements_out=64, group_size=2, group="dp", dtype="Float")
    made.launch(1, 6 * US, 7 * US).kernel("gemm", 15 * US, 25 * US, correlation=1)
    made.launch(2, 20 * US, 21 * US).kernel("gemm", 25 * US, 45 * US, correlation=2)
    made.work(Kind.KERNEL, "ncclDevKernel", 35 * US, 55 * US, stream=9, correlation=2, collective=told)
    return made.launch(3, 80 * US, 81 * US).work(Kind.MEMCPY, "Memcpy DtoH", 81 * US, 91 * US, correlation=3).trace()


def test_the_page_of_a_recording_with_a_device() -> None:
    """
    What the device did, what held it up, the tables, and the difference.
    """
    row = window(
        8,
        artifact="x.json.gz",
        bytes=2048,
        complete=False,
        incomplete_reason="gap_tail",
        incomplete_share=0.125,
        detail="gap_tail: 0.1 s",
    )
    before = Timeline().kernel("gemm", 0, 5 * US).kernel("gemm", 5 * US, 10 * US).trace()
    after, work = _after(), Work(mini_batches=2)
    found = difference(before, after, work_before=work, work_after=work)
    shown = Shown(
        row=row,
        directory=None,
        summaries=[summarise(after, window=(0, 100 * US))],
        why="",
        against=Against(window=window(5), differences=[found]),
    )

    assert PAGE.splitlines() == sheet.lines(shown, near=Path("/"))
