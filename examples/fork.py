"""Take the other word where an answer hung by a hair: python examples/fork.py [URL]"""

import sys

from openai import OpenAI
from openai.types import Completion

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")
question = {"role": "user", "content": "Write one sentence about the sea."}
first = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[question],
    temperature=0,
    max_tokens=32,
    logprobs=True,
    top_logprobs=2,
)
print(first.choices[0].message.content)

tokens = first.choices[0].logprobs.content
margins = {
    place: best.logprob - other.logprob
    for place, token in enumerate(tokens)
    for best, other in [token.top_logprobs]
    if not other.token.startswith("<|")
}
for place in sorted(margins, key=margins.get)[:3]:
    other = tokens[place].top_logprobs[1].token
    fork = client.post(
        "/fork",
        cast_to=Completion,
        body={
            "request_id": first.id,
            "at_token": first.usage.prompt_tokens + place,  # of prompt and answer, this many stay
            "text": other,
        },
    )
    kept = "".join(token.token for token in tokens[:place])
    print(f"{kept}[{other}]{fork.choices[0].text}")
    usage = fork.usage
    computed = usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens
    print(f"     {computed} of {usage.prompt_tokens} prompt tokens computed")
