"""Which ending does the model find likeliest? python examples/score.py [URL]"""

import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")
model = client.models.list().data[0].id
question, endings = "The capital of Japan is", [" Tokyo.", " Paris.", " made of cheese."]
answer = client.completions.create(
    model=model,
    prompt=[question + ending for ending in endings],
    echo=True,  # the prompts' own tokens, and
    logprobs=0,  # their logprobs;
    max_tokens=0,  # nothing is drawn
)
for choice, ending in zip(answer.choices, endings, strict=True):
    told = choice.logprobs
    of_ending = [
        logprob
        for logprob, offset in zip(told.token_logprobs, told.text_offset, strict=True)
        if offset >= len(question)
    ]
    print(f"{sum(of_ending):8.2f} {ending}")
