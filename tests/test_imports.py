"""What serving on a CPU imports: PyTorch and Transformers are for CUDA and for tests."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "import octavo.cli; octavo.cli._parser()",
        "from octavo import LLM, SamplingParams",
        "import octavo.bench.run",
        "import octavo.serve.run",
        "import octavo.engine.process",
        "import octavo.worker.worker",
        "from octavo.native.library import library; library()",
        "from octavo.engine.hardware import pick_device; pick_device('cpu')",
    ],
)
def test_the_cpu_path_imports_no_torch(code):
    check = f"{code}\nimport sys; assert not {{'torch', 'transformers'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", check], check=True)
