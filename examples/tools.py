"""A model that calls your functions: python examples/tools.py [URL]

The model's chat template must know tools; for one that does not, start the server with
--chat-template examples/tools.jinja
"""

import json
import sys

from openai import OpenAI


def add(a: int, b: int) -> int:
    return a + b


NUMBER = {"type": "integer", "minimum": 0, "maximum": 1000}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": NUMBER, "b": NUMBER},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")
messages = [{"role": "user", "content": "What is 17 plus 25?"}]
asked = {
    "model": client.models.list().data[0].id,
    "tools": [TOOL],
    "temperature": 0,
    "max_tokens": 128,
}
message = (
    client.chat.completions.create(
        messages=messages, tool_choice="required", parallel_tool_calls=False, **asked
    )
    .choices[0]
    .message
)
messages.append(message)
for call in message.tool_calls:
    arguments = json.loads(call.function.arguments)
    result = add(**arguments)
    print(f"{call.function.name}({arguments}) = {result}")
    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
for chunk in client.chat.completions.create(
    messages=messages, tool_choice="none", stream=True, **asked
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
