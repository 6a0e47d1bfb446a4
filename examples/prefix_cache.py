"""Ask several questions about one text; it is computed once: python examples/prefix_cache.py"""

import sys

from octavo import LLM, SamplingParams

TEXT = "Octavo keeps the KV cache in blocks of 16 tokens, found again by content. " * 8
QUESTIONS = ["How large is a block?", "What is kept in blocks?", "How are blocks found?"]

llm = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2", kv_memory="256MiB", max_model_len=2048)
talks = [[{"role": "system", "content": TEXT}, {"role": "user", "content": q}] for q in QUESTIONS]
for question, output in zip(
    QUESTIONS, llm.chat(talks, SamplingParams(temperature=0, max_tokens=24)), strict=True
):
    print(
        f"{output.num_cached_tokens:4} of {len(output.prompt_token_ids)} prompt tokens from cache:"
    )
    print(f"     {question} {output.outputs[0].text}")
