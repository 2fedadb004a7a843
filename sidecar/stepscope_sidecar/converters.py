"""
What a number in an address may be: as long as the store can have it, so that no address is an error of ours.
"""

from starlette.convertors import IntegerConvertor, register_url_convertor

STEP = "step"
"""Its name in routes: ``/steps/{step:step}``."""


class StepConvertor(IntegerConvertor):
    """
    A step; Starlette's own numbers have no end, and beyond 4,300 digits Python refuses to read one.
    """

    regex = "[0-9]{1,15}"


register_url_convertor(STEP, StepConvertor())
