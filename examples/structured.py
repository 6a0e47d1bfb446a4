"""Answers in a shape of your own: python examples/structured.py [URL]"""

import sys

from openai import OpenAI
from pydantic import BaseModel, Field


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)
    founded: int = Field(ge=-5000, le=2100)
    rivers: list[str] = Field(max_length=3)


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")
asked = {
    "model": client.models.list().data[0].id,
    "messages": [{"role": "user", "content": "Tell me of Paris, as JSON."}],
    "temperature": 0,
}
answer = client.chat.completions.parse(response_format=City, max_tokens=256, **asked)
print(answer.choices[0].message.parsed)

# Far too few tokens for all that the model would say: what it says is whole all the same.
schema = {"name": "city", "schema": City.model_json_schema()}
form = {"type": "json_schema", "json_schema": schema}
choice = client.chat.completions.create(response_format=form, max_tokens=40, **asked).choices[0]
print(City.model_validate_json(choice.message.content), choice.finish_reason, choice.structured)

words = {"structured_outputs": {"choice": ["yes", "no"]}}
answer = client.chat.completions.create(extra_body=words, max_tokens=8, **asked)
print(answer.choices[0].message.content)
