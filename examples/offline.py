"""Continue a few prompts in this process: python examples/offline.py [MODEL]"""

import sys

from octavo import LLM, SamplingParams

llm = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2", kv_memory="256MiB", max_model_len=2048)
prompts = ["The capital of France is", "Water boils at", "Once upon a time"]
for output in llm.generate(prompts, SamplingParams(temperature=0.7, seed=1, max_tokens=24)):
    print(f"{output.prompt!r} -> {output.outputs[0].text!r}")
