"""What serving on a CPU imports: PyTorch and Transformers are for CUDA and for tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tiny_chat import tiny_chat_model

ANSWER = """
from octavo import LLM, SamplingParams
llm = LLM({!r}, device="cpu", kv_memory="8MiB", threads=1)
params = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=2)
[output] = llm.chat([[{{"role": "user", "content": "hello"}}]], params, use_tqdm=False)
assert len(output.outputs[0].token_ids) == 3, output
"""


def assert_no_torch_after(code: str) -> None:
    check = f"{code}\nimport sys; assert not {{'torch', 'transformers'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import octavo.cli; octavo.cli._parser()",
        "from octavo import LLM, SamplingParams",
        "import octavo.bench.run",
        "import octavo.serve.run",
        "import octavo.engine.process",
    ],
)
def test_commands_import_no_torch(code):
    assert_no_torch_after(code)


def test_answering_on_a_cpu_imports_no_torch(tmp_path):
    assert_no_torch_after(ANSWER.format(str(tiny_chat_model(tmp_path))))
