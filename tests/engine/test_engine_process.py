"""The engine's own process: streams, aborts, failures at start, death, idleness."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import psutil
import pytest
from tiny_models import tiny_model

from octavo import LLM, SamplingParams
from octavo.base.errors import (
    ConfigError,
    EngineDeadError,
    EngineError,
    QueueFullError,
    RequestError,
)
from octavo.base.settings import EngineSettings
from octavo.engine.client import AsyncEngine
from octavo.engine.door import Door
from octavo.files.model_files import ModelFiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_model(path, "llama")
    return path


def settings(folder, **options):
    given = {"dtype": "float32", "kv_memory": "2MiB", "max_model_len": 400, "threads": 1}
    return EngineSettings.flat(model=str(folder), **(given | options))


@pytest.fixture
async def engine(folder):
    started = await AsyncEngine.start(settings(folder), ModelFiles("tiny", folder))
    yield started
    await started.close()


async def collect(engine, request):
    tokens, reason = [], None
    async for delta in engine.generate(request):
        tokens += delta.token_ids
        reason = delta.finish_reason
    return tokens, reason


async def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def params(n=12):
    return SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True)


async def test_a_restart_finds_what_the_process_before_had_cached(folder, tmp_path):
    kept = settings(folder, kv_swap="64MiB", kv_swap_dir=str(tmp_path / "kv"))
    prompt, found = list(range(3, 60)), []
    for _ in range(2):
        engine = await AsyncEngine.start(kept, ModelFiles("tiny", folder))
        request = Door(engine.info, 0).request(prompt, params())
        deltas = [delta async for delta in engine.generate(request)]
        found.append((deltas[0].num_cached_tokens, [t for d in deltas for t in d.token_ids]))
        await engine.close()
    assert [hit for hit, _ in found] == [0, 48]
    assert found[0][1] == found[1][1]


async def test_many_streams_give_what_the_same_model_gives_in_process(engine, folder):
    door = Door(engine.info, 0)
    prompts = [[i + 3, 5, 8] for i in range(10)]
    streamed = await asyncio.gather(*(collect(engine, door.request(p, params())) for p in prompts))
    offline = LLM(
        str(folder),
        dtype="float32",
        kv_memory="2MiB",
        skip_tokenizer_init=True,
        threads=1,
        max_model_len=400,
    ).generate(prompts, params(), use_tqdm=False)
    assert streamed == [(o.outputs[0].token_ids, "length") for o in offline]
    assert engine.stats.running == engine.stats.kv_blocks_used == 0


async def test_leaving_a_stream_early_frees_its_blocks(engine):
    stream = engine.generate(Door(engine.info).request([3] * 50, params(300)))
    await anext(stream)
    assert engine.stats.running == 1
    await stream.aclose()
    await until(lambda: engine.stats.running == 0 and engine.stats.kv_blocks_used == 0)
    assert engine.stats.steps_total < 200


async def test_an_id_in_use_is_refused_and_the_first_goes_on(engine):
    door = Door(engine.info)
    first = engine.generate(door.request([3], params(50), request_id="same"))
    await anext(first)
    with pytest.raises(RequestError, match="same"):
        await anext(engine.generate(door.request([4], params(), request_id="same")))
    assert sum([len(d.token_ids) async for d in first]) == 49


async def test_death_reaches_every_stream_and_every_later_request(engine):
    request = Door(engine.info).request([3], params(390))
    stream = engine.generate(request)
    await anext(stream)
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="signal 9"):
        async for _ in stream:
            pass
    with pytest.raises(EngineDeadError):
        await anext(engine.generate(request))
    assert "signal 9" in engine.dead


async def test_an_answer_that_cannot_be_read_ends_every_stream(engine, caplog):
    stream = engine.generate(Door(engine.info).request([3], params(390)))
    await anext(stream)
    engine._take(b"junk")
    with pytest.raises(EngineDeadError, match="cannot be read"):
        async for _ in stream:
            pass
    assert "cannot be read" in caplog.text


async def test_close_ends_the_process_and_its_folder(folder):
    engine = await AsyncEngine.start(settings(folder), ModelFiles("tiny", folder))
    process, private = psutil.Process(engine._process.pid), engine._pipe.folder
    assert private.stat().st_mode & 0o777 == 0o700
    await engine.close()
    assert not process.is_running()
    assert not private.exists()


@pytest.mark.parametrize(
    "options,message",
    [
        ({"kv_memory": "x"}, "'x' is no amount of memory"),
        ({"kv_memory": "60KB"}, "--max-model-len 48"),
        ({"max_model_len": 9999}, "max_model_len must be between 2 and 512"),
    ],
)
async def test_a_failure_at_start_reaches_the_user_as_its_own_message(folder, options, message):
    with pytest.raises(ConfigError, match=message):
        await AsyncEngine.start(settings(folder, **options), ModelFiles("tiny", folder))


async def test_files_that_are_no_model_are_named(folder, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')
    with pytest.raises(ConfigError, match="abacus"):
        await AsyncEngine.start(settings(tmp_path), ModelFiles("tiny", tmp_path))


async def test_a_temporary_folder_with_too_long_a_path_is_named(folder, tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigError, match="cannot listen on ipc://"):
        await AsyncEngine.start(settings(folder), ModelFiles("tiny", folder))
    assert not list(deep.iterdir())


async def test_a_process_that_ends_before_it_is_ready_says_how(folder, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EngineError, match="exit code 1"):
        await AsyncEngine.start(settings(folder), ModelFiles("tiny", folder))


async def test_an_idle_engine_costs_nothing(engine):
    await collect(engine, Door(engine.info).request([3], params()))
    process = psutil.Process(engine._process.pid)
    await asyncio.sleep(0.5)
    before, here = process.cpu_times(), time.process_time()
    await asyncio.sleep(3.0)
    after = process.cpu_times()
    assert after.user + after.system - before.user - before.system < 0.03
    assert time.process_time() - here < 0.03


async def test_the_engine_dies_with_its_parent(folder):
    code = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from octavo.base.settings import EngineSettings\n"
        "from octavo.engine.client import AsyncEngine\n"
        "from octavo.files.model_files import ModelFiles\n"
        "async def main():\n"
        "    settings = EngineSettings.flat(threads=1, kv_memory='2MiB', max_model_len=400)\n"
        f"    files = ModelFiles('tiny', Path({str(folder)!r}))\n"
        "    e = await AsyncEngine.start(settings, files)\n"
        "    print(e._process.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    await until(lambda: not child.is_running() or child.status() == "zombie", 5.0)


async def test_more_than_may_wait_are_refused(folder):
    limits = {"max_num_seqs": 1, "max_waiting": 1}
    engine = await AsyncEngine.start(settings(folder, **limits), ModelFiles("tiny", folder))
    door = Door(engine.info)
    streams = [engine.generate(door.request([3], params(200))) for _ in range(2)]
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await waiting[0]
    with pytest.raises(QueueFullError, match="2 requests run or wait already"):
        await anext(engine.generate(door.request([3], params())))
    await streams[0].aclose()
    await waiting[1]
    await streams[1].aclose()
    await engine.close()


async def test_signals_to_the_whole_group_leave_the_engine_to_its_client(engine):
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(engine._process.pid, number)
    assert len((await collect(engine, Door(engine.info).request([3], params())))[0]) == 12
