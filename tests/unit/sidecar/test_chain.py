"""
The chain of sidecars that spans came through: read from whatever anybody sends, written, joined, bounded.
"""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope_sidecar import chain
from stepscope_sidecar.chain import JOINED, LONGEST, LONGEST_NAME, Chain


def test_a_chain_is_read_as_it_was_written() -> None:
    """
    Names of attempts, nodes and pids pass as they are, in one header or in several as a proxy may split them.
    """
    expected = ("20260101-000000-abcdef/node-1.local/17", "a1/n_2/3", "hub")

    assert expected == chain.read([chain.written(expected)])
    assert expected == chain.read([chain.written(expected[:1]), " a1/n_2/3 ,\thub"])
    assert () == chain.read([])
    assert "" == chain.written(())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ()),
        (",,, ,", ()),
        ("a\r\nx-evil: 1,b", ("b",)),
        ("a\x00,b", ("b",)),
        ("ü,名字,b", ("b",)),
        ("a b,<script>,b", ("b",)),
        ("x" * (LONGEST_NAME + 1) + ",b", ("b",)),
        ("a\n,b", ("b",)),
    ],
)
def test_what_is_no_name_is_left_out(value: str, expected: Chain) -> None:
    """
    Of a header that somebody made up only what could be a name counts, and nothing of it is an error.
    """
    assert expected == chain.read([value])


def test_a_chain_is_bounded() -> None:
    """
    A header of any length is a chain of the longest, which goes no further.
    """
    found = chain.read([",".join(f"n{number}" for number in range(10_000))])

    assert LONGEST == len(found)
    assert chain.circles(found, "me")
    assert not chain.circles(found[1:], "me")
    assert 4096 > len(chain.written(("x" * LONGEST_NAME,) * LONGEST))


def test_one_that_has_been_passed_is_known() -> None:
    """
    Wherever in the chain it stands; a sidecar without a name knows nothing again.
    """
    assert chain.circles(("a", "me", "b"), "me")
    assert not chain.circles(("a", "me2", "b"), "me")
    assert not chain.circles(("a",), "")


@given(st.text())
def test_any_name_is_one_that_a_header_takes(text: str) -> None:
    """
    Whatever a node is called: its sidecar's name is read as it was written, and HTTP takes it.
    """
    name = chain.name(f"a1/{text.encode(errors='replace').decode()}/7")
    value = chain.written(("before", name))

    assert ("before", name) == chain.read([value])
    assert value == httpx.Headers({"stepscope-via": value})["stepscope-via"]


def test_chains_of_many_nodes_share_a_request_up_to_a_bound() -> None:
    """
    Alike ones always do, of others those that hold no more than their sender, and not too many.
    """
    long = tuple(f"n{number}" for number in range(JOINED + 1))
    direct = [(name,) for name in long]

    assert chain.together([long, long])
    assert chain.together([(), ("a",), ("b",), ("a",), ()])
    assert chain.together(direct[1:] * 2)
    assert not chain.together(direct)
    assert not chain.together([("a",), ("b", "c")])
    assert not chain.together([(), ("b", "c")])
    assert chain.together([])
    assert ("a", "b", "c") == chain.union([("a",), (), ("b", "a"), ("c",)])
