"""
The chain of sidecars that spans have come through, by which one notices that they go round.

Owns how a chain is written into a header, read from one that anybody may have sent, and joined with others. Who adds
itself to it, and what is done with spans that come back, is ``forward``'s.
"""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from urllib.parse import quote

Chain = tuple[str, ...]
"""Names of sidecars; the last one has sent."""

LONGEST = 32
"""Names in a chain. Spans that have come so far are sent no further, whoever it was that they passed."""

JOINED = 16
"""Senders whose spans share a request: few enough that it has hops left to go."""

LONGEST_NAME = 96
"""Characters; a whole chain is 3 KB at most, and many servers take 8 KB of headers."""

NAME = re.compile(rf"[A-Za-z0-9_.~%/:@+-]{{1,{LONGEST_NAME}}}")


def name(text: str) -> str:
    """
    ``text`` as the name of a sidecar: with nothing that a header cannot hold, and not too long.
    """
    found = quote(text, safe="/:@+")
    return found if len(found) <= LONGEST_NAME else sha256(text.encode()).hexdigest()


def read(values: Iterable[str]) -> Chain:
    """
    The chain in the ``values`` of a header. What is no name is left out, and what follows the longest chain.
    """
    found: list[str] = []
    for value in values:
        items = (item.strip(" \t") for item in value.split(","))
        found += [item for item in items if NAME.fullmatch(item)]
    return tuple(found[:LONGEST])


def written(chain: Chain) -> str:
    """
    ``chain`` as the value of a header.
    """
    return ",".join(chain)


def circles(chain: Chain, own: str) -> bool:
    """
    Whether spans that came by ``chain`` have been at ``own`` before, or have come too far for us to know.
    """
    return own in chain or len(chain) >= LONGEST


def together(chains: Collection[Chain]) -> bool:
    """
    Whether spans that came by ``chains`` may share a request, whose chain is then the union of theirs.

    Alike ones may. So may spans made here and those straight from the sidecars that made them, or an upstream of many
    nodes would send each request on alone: all that are named then send here, so that whoever of them finds itself
    in a chain that was another's would send back what has been here. Others could keep spans from those in between.
    """
    kinds = set(chains)
    return len(kinds) <= 1 or (len(kinds) <= JOINED and all(len(chain) <= 1 for chain in kinds))


def union(chains: Iterable[Chain]) -> Chain:
    """
    All names in ``chains``, each once.
    """
    return tuple(dict.fromkeys(name for chain in chains for name in chain))
