"""Structures are compiled where they can do no harm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from octavo.base.errors import RequestError
from octavo.base.structured import Marker, StructuredOutputsParams, Thinking
from octavo.grammar.checker import Checker, Limits
from octavo.grammar.service import CompileService
from tests.grammar.bytewise import VOCABULARY

SLOW = {"regex": "(?!.*(a|b)*c.{1,500}).*(a|b).{500}"}
CASES = [[{"properties": {f"{i}{j}": {"type": "null"}}} for j in range(5)] for i in range(20)]
DOUBLING = "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(40))
ALTERNATIVES = 500 * '"a"i | '
LARGE = "start: A\nA: B~9999 B~9999\nB: C C C C C C C C\nC: " + ALTERNATIVES + '"b"'
PATHOLOGICAL = {
    "exponential regex": SLOW,
    "many numbers": {"json": {"enum": list(range(200_000))}},
    "many items": {"json": {"type": "array", "minItems": 200_000}},
    "many cases": {"json": {"allOf": [{"anyOf": case} for case in CASES]}},
    "doubling terminals": {"grammar": f'start: A0\n{DOUBLING}A40: "a"'},
    "large terminals": {"grammar": LARGE},
    "deep": {"json": "[" * 2**19},
    "deep groups": {"regex": "(" * 2**15 + ")" * 2**15},
}


def params(**structure: object) -> StructuredOutputsParams:
    return StructuredOutputsParams(**structure)


def processes() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [one for one in children if "octavo.grammar.check_process" in one.cmdline()]


def refusal(checker: Checker, **structure: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        checker.check(params(**structure), None)
    return caught.value


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    made = Checker(lambda: VOCABULARY, limits=Limits(seconds=1.0))
    made.start()
    yield made
    made.close()


def test_good_and_bad_structures(checker):
    checker.check(params(json={"type": "object", "properties": {"a": {"type": "integer"}}}), None)
    checker.check(params(grammar='root ::= "a" | "(" root ")"'), None)
    error = refusal(checker, json={"type": "objects"})
    assert error.field == "json" and "type" in str(error)
    assert refusal(checker, regex="(a").field == "regex"


def test_what_is_bad_is_refused_soon(checker):
    seconds = []
    for i in range(5):
        begin = time.perf_counter()
        refusal(checker, json={"properties": {f"p{i}": {"type": "no"} for i in range(20 + i)}})
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.05


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_what_takes_too_long_is_refused_in_time(checker, name):
    begin = time.perf_counter()
    refusal(checker, **PATHOLOGICAL[name])
    assert time.perf_counter() - begin < 1.0 + 2.0  # some of it is a new process, and other tests
    checker.check(params(choice=["goes on"]), None)


def test_more_than_a_megabyte_is_refused_at_the_door():
    with pytest.raises(RequestError, match="at most 1048576"):
        params(json=json.dumps({"description": "x" * 10_000_000}))


def test_verdicts_are_kept(checker):
    good, bad = params(regex="[a-f]+"), params(regex="[a-f")
    checker.check(good, None)
    refusal(checker, regex="[a-f")
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        assert checker.is_known(good, None)
        with pytest.raises(RequestError):
            checker.is_known(bad, None)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.001
    assert not checker.is_known(params(regex="[a-g]+"), None)


def test_a_process_that_somebody_ends_is_replaced(checker):
    checker.start()
    (child,) = processes()
    os.kill(child.pid, signal.SIGSTOP)  # so that it is in the middle of what it is asked
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {child.pid}"])
    checker.check(params(choice=["after all"]), None)
    killer.wait()
    assert [one.pid for one in processes()] != [child.pid]


def test_a_memory_bomb_ends_its_own_process_only():
    checker = Checker(lambda: VOCABULARY, limits=Limits(seconds=30.0, bytes=2**26))
    try:
        error = refusal(checker, grammar=LARGE)
        assert "too much memory" in str(error) and error.field == "grammar"
        checker.check(params(choice=["goes on"]), None)
    finally:
        checker.close()


async def test_many_at_once_wait_for_their_turn():
    service = CompileService(Checker(lambda: VOCABULARY, limits=Limits(seconds=1.0)))
    slow = asyncio.ensure_future(service.check(params(**SLOW), None))
    good = [service.check(params(regex=f"a{{1,{i}}}"), None) for i in range(1, 18)]
    bad = [service.check(params(regex=f"a{{{i},1}}"), None) for i in range(2, 4)]
    found = await asyncio.gather(slow, *good, *bad, return_exceptions=True)
    assert str(found[0]) == "regex: compiling it took more than 1 s"
    assert found[1:18] == [None] * 17
    assert all("counts out of order" in str(error) for error in found[18:])
    await service.close()


async def test_a_loop_goes_on_while_something_is_compiled():
    service = CompileService(Checker(lambda: VOCABULARY, limits=Limits(seconds=0.5)))
    await service.check(params(choice=["warm"]), None)
    slow = asyncio.ensure_future(service.check(params(**SLOW), None))
    turns = 0
    while not slow.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 10
    with pytest.raises(RequestError):
        await slow
    await service.close()


def test_the_process_ends_with_its_parent():
    program = (
        "import os, signal, psutil\n"
        "from octavo.grammar.checker import Checker\n"
        "from tests.grammar.bytewise import VOCABULARY\n"
        "checker = Checker(lambda: VOCABULARY); checker.start()\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    end = time.monotonic() + 10
    while psutil.pid_exists(int(done.stdout)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(done.stdout))


def test_reasoning_is_part_of_what_is_asked(checker):
    thinking = Thinking(opens=Marker("<t>"), closes=Marker("</t>"))
    checker.check(params(choice=["x"]), thinking)
    assert checker.is_known(params(choice=["x"]), thinking)
    assert not checker.is_known(params(choice=["x"]), None)
