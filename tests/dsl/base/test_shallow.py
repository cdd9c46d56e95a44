"""Calls on a stack of their own."""

from __future__ import annotations

import threading

import pytest

from weft.dsl.base.shallow import on_new_stack


def test_a_call_runs_in_another_thread_and_its_value_or_error_comes_back() -> None:
    assert on_new_stack(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        on_new_stack(lambda: 1 // 0)
