"""The table of request codes, and the parts that processors ask for by name."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import fields

import pytest

from failback.broker.processors.compose import PROCESSORS, Parts, handled_codes
from failback.protocol.codes import RequestCode

PART_TYPES = {each.name: each.type for each in fields(Parts)}


def test_each_code_has_one_processor() -> None:
    codes = Counter(handled.code for _, handled in handled_codes())
    assert [code for code, times in codes.items() if times > 1] == []
    assert {RequestCode.SEND_MESSAGE, RequestCode.HEART_BEAT} <= codes.keys()


def test_only_pulls_are_refused_on_the_fast_port() -> None:
    main_port_only = {handled.code for _, handled in handled_codes() if handled.main_port_only}
    assert main_port_only == {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_an_argument_has_the_type_of_the_part_of_its_name(processor: type) -> None:
    asked = inspect.signature(processor).parameters
    wrong = {
        name: (argument.annotation, PART_TYPES.get(name))
        for name, argument in asked.items()
        if argument.annotation != PART_TYPES.get(name)
    }
    wrong.pop("registrar", None)  # a Protocol, which Registration satisfies
    assert wrong == {}
