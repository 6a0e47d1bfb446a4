"""The workloads are fixed, and the same as those that other engines are measured on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys

import pytest

from octavo.base.errors import ConfigError
from octavo.bench.workloads import WORKLOADS, workload


def test_they_equal_the_workloads_of_other_engines(shared, monkeypatch):
    file = shared / "bench" / "workload.py"
    if not file.is_file():
        pytest.skip(f"no workloads in {shared}")
    spec = importlib.util.spec_from_file_location("outside_workload", file)
    outside = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "outside_workload", outside)
    spec.loader.exec_module(outside)
    assert outside.WORKLOADS.keys() == WORKLOADS.keys()
    for name, make in outside.WORKLOADS.items():
        theirs = [(r.prompt, r.output_len) for r in make()]
        assert [(w.prompt, w.output_len) for w in workload(name)] == theirs


def test_they_never_change():
    made = {name: [[w.prompt, w.output_len] for w in make()] for name, make in WORKLOADS.items()}
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
    assert digest == "659cc4eb71a87bf1049a06a94108212408108c9573d774a5f66935da596b8388"


def test_an_unknown_one_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="single, mixed, shared_prefix, prefill, long_context"):
        workload("huge")
