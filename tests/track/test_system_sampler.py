"""What the sampler of the machine reads."""

from __future__ import annotations

import sys
import types

import pytest

from llmexp.track.system import _torch_memory


@pytest.mark.parametrize("attributes", [{}, {"cuda": types.ModuleType("cuda")}])
def test_torch_that_another_thread_still_imports_is_no_torch_yet(monkeypatch, attributes):
    half = types.ModuleType("torch")
    vars(half).update(attributes)
    monkeypatch.setitem(sys.modules, "torch", half)
    assert _torch_memory() == {}
