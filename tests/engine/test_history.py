"""What is remembered of requests, for how long, and for whom."""

from __future__ import annotations

import pytest

from octavo.base.errors import NotFoundError, RequestError
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.engine import history
from octavo.engine.history import KEPT, History
from octavo.text.assembler import TextDelta


def request(name, owner="", prompt=(1, 2, 3), n=1):
    params = SamplingParams(n=n, max_tokens=9, seed=0)
    return Request(request_id=name, prompt_token_ids=list(prompt), params=params, owner=owner)


def piece(*ids, index=0, **more):
    return TextDelta(text="", token_ids=list(ids), index=index, **more)


def finish(records, name, owner="", prompt=(1, 2, 3)):
    records.begin(request(name, owner, prompt)).add(piece(7))
    records.end(name)


def test_tokens_of_each_sequence_as_they_come():
    record = History().begin(request("a", n=2))
    assert record.tokens(1, None) == [1, 2, 3]
    record.add(piece(4, 5, index=1, num_cached_tokens=2, miss="cold"))
    record.add(piece(6, index=0, num_cached_tokens=2, miss="cold"))
    record.add(piece(index=1, finish_reason="error"))
    assert record.tokens(0, None) == [1, 2, 3, 6]
    assert [record.tokens(1, upto) for upto in (1, 4, 5)] == [[1], [1, 2, 3, 4], [1, 2, 3, 4, 5]]
    assert (record.num_cached_tokens, record.miss, record.num_tokens) == (2, "cold", 6)
    for child, upto, field in ((2, None, "index"), (-1, 1, "index"), (0, 0, "at_token")):
        with pytest.raises(RequestError) as caught:
            record.tokens(child, upto)
        assert caught.value.field == field
    with pytest.raises(RequestError, match=r"between 1 and 5, .* got 6"):
        record.tokens(1, 6)


def test_a_running_request_is_found_by_its_owner_alone():
    records = History()
    record = records.begin(request("a", "alice"))
    assert records.get("alice", "a") is record
    for owner, name in (("bob", "a"), ("", "a"), ("alice", "b")):
        with pytest.raises(NotFoundError):
            records.get(owner, name)
    record.add(piece(7))
    records.end("a")
    assert records.get("alice", "a") is record
    assert records.find("bob", "a") is None


def test_the_last_ones_of_each_owner_are_kept():
    records = History()
    for i in range(KEPT + 2):
        finish(records, f"a{i}", "alice")
    finish(records, "b", "bob")
    for i in range(KEPT - 1):
        finish(records, f"c{i}", "carol")
    assert [records.find("alice", f"a{i}") is None for i in range(4)] == [True, True, False, False]
    assert records.find("bob", "b") is not None


def test_one_that_got_no_token_is_forgotten():
    records = History()
    finish(records, "old")
    for i in range(KEPT):
        records.begin(request(f"r{i}"))
        records.end(f"r{i}")
    assert records.find("", "old") is not None
    assert records.find("", "r0") is None


def test_an_id_used_again_is_the_newer_request():
    records = History()
    finish(records, "a")
    finish(records, "a", prompt=(9,))
    assert records.get("", "a").tokens(0, None) == [9, 7]


def test_owners_and_tokens_are_bounded(monkeypatch):
    monkeypatch.setattr(history, "OWNERS", 2)
    monkeypatch.setattr(history, "KEPT_TOKENS", 20)
    records = History()
    for owner in ("alice", "bob", "alice", "carol"):  # bob is who has been away for longest
        finish(records, "x", owner)
    assert [records.find(o, "x") is not None for o in ("alice", "bob", "carol")] == [
        True,
        False,
        True,
    ]
    finish(records, "y", "carol", prompt=range(11))  # 20 tokens in all
    assert records.find("alice", "x") is not None
    finish(records, "z", "carol", prompt=(1,))
    assert records.find("alice", "x") is None
    assert all(records.find("carol", name) for name in ("x", "y", "z"))
    finish(records, "huge", "carol", prompt=range(30))
    assert not any(records.find("carol", name) for name in ("x", "y", "z", "huge"))
    finish(records, "small", "carol")
    assert records.find("carol", "small") is not None
