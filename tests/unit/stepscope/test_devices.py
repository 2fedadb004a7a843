"""
Which accelerator a process works on, where nobody said so.
"""

from types import SimpleNamespace

import pytest

from stepscope import devices


def torch(kind: str = "cuda", *, current: int = 0, initialised: bool = True, broken: bool = False) -> SimpleNamespace:
    """
    A torch whose device of ``kind`` is the one given.
    """

    def current_device() -> int:
        if broken:
            raise RuntimeError("CUDA error")
        return current

    return SimpleNamespace(**{kind: SimpleNamespace(is_initialized=lambda: initialised, current_device=current_device)})


@pytest.mark.parametrize(
    ("expected", "environment"),
    [
        ((), {}),
        ((), {"CUDA_VISIBLE_DEVICES": ""}),
        ((), {"CUDA_VISIBLE_DEVICES": "-1"}),
        ((), {"CUDA_VISIBLE_DEVICES": "0,1"}),
        (("cuda:3",), {"CUDA_VISIBLE_DEVICES": "3"}),
        (("cuda:3",), {"CUDA_VISIBLE_DEVICES": " 3 ,-1,4"}),
        (("cuda:GPU-8f2a",), {"CUDA_VISIBLE_DEVICES": "GPU-8f2a"}),
        (("npu:5",), {"ASCEND_RT_VISIBLE_DEVICES": "5"}),
        (("npu:5",), {"CUDA_VISIBLE_DEVICES": "", "ASCEND_RT_VISIBLE_DEVICES": "5"}),
    ],
)
def test_a_process_that_sees_one_device_works_on_it(expected: tuple[str, ...], environment: dict[str, str]) -> None:
    """
    Numbered as on the node; one that sees none, or several without torch, has none.
    """
    assert expected == devices.mine(environment, modules={}, there=bool)


@pytest.mark.parametrize(
    ("expected", "module"),
    [
        (("cuda:6",), torch(current=1)),
        ((), torch(current=9)),
        ((), torch(initialised=False)),
        ((), torch(broken=True)),
        ((), torch("npu")),
        ((), SimpleNamespace()),
    ],
)
def test_of_several_it_is_the_one_that_torch_has_made_current(
    expected: tuple[str, ...], module: SimpleNamespace
) -> None:
    """
    Of a torch that is set up: none is set up for this, and one that is broken is asked in vain.
    """
    assert expected == devices.mine({"CUDA_VISIBLE_DEVICES": "4,6"}, modules={"torch": module}, there=bool)


def test_npus_are_told_alike() -> None:
    """
    By their own variable and torch's module of that name.
    """
    assert ("npu:2",) == devices.mine(
        {"ASCEND_RT_VISIBLE_DEVICES": "0,1,2,3"}, modules={"torch": torch("npu", current=2)}, there=bool
    )


def test_without_the_variable_nothing_is_guessed() -> None:
    """
    In two containers on one node both would be number 0, and be different devices.
    """
    assert () == devices.mine({}, modules={"torch": torch(current=0)}, there=bool)


def test_what_init_was_told_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The guess is for whoever said nothing.
    """
    monkeypatch.setattr(devices, "mine", lambda environment: ("cuda:3",))

    assert ["gpu-7"] == devices.of(("gpu-7",))
    assert ["cuda:3"] == devices.of(())


def test_a_machine_without_devices_has_none() -> None:
    """
    The variable is set there too; two processes on the CPU don't stand in each other's way.
    """
    assert () == devices.mine({"CUDA_VISIBLE_DEVICES": "0"}, modules={}, there=lambda _: False)
