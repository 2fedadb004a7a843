"""
What a rollouter hands over.
"""

from stepscope_rollouter.samples import ranges


def test_a_completion_over_updates_says_which_version_generated_which_tokens() -> None:
    """
    Half-open ranges, so that they add up; none for no tokens.
    """
    assert "v3[0:2] v4[2:3] v6[3:4]" == ranges([3, 3, 4, 6])
    assert "v0[0:1]" == ranges([0])
    assert "" == ranges([])
