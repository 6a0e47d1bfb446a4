"""The prompt guesses what comes next, the answer is the same: python examples/speculation.py"""

import sys
import time

from octavo import LLM, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
text = (
    "The old lighthouse keeper climbed the stairs at dusk. He lit the lamp, wound the clockwork "
    "and wrote the hour into his book. Then he sat down by the window and waited for the ships."
)
request = [{"role": "user", "content": f"Repeat this text word by word:\n\n{text}"}]
params = SamplingParams(temperature=0.3, max_tokens=96)

plain = LLM(model, prefix_caching=False)
guessing = LLM(model, prefix_caching=False, speculation="ngram")
[first] = plain.chat(request, params, use_tqdm=False)
again = SamplingParams(temperature=0.3, max_tokens=96, seed=first.seed)

for name, llm in (("one by one", plain), ("guessed", guessing)):
    begin = time.perf_counter()
    [output] = llm.chat(request, again, use_tqdm=False)
    seconds = time.perf_counter() - begin
    answer = output.outputs[0]
    print(
        f"{name:<12}{len(answer.token_ids)} tokens in {seconds:.2f} s, "
        f"{answer.num_accepted} of {answer.num_drafts} guesses were right, "
        f"the same as before: {answer.token_ids == first.outputs[0].token_ids}"
    )
