"""Stream from a running server by the openai package: python examples/chat_client.py [URL]"""

import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")
model = client.models.list().data[0].id
question = {"role": "user", "content": "What is the capital of Japan?"}
for chunk in client.chat.completions.create(
    model=model, messages=[question], stream=True, temperature=0, max_tokens=24
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
