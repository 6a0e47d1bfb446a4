"""Whether each of Transformers' causal language models is still what the census says."""

from __future__ import annotations

import pytest

from octavo.fallback.census import as_decoders, examined, known_types, line, table

SAMPLE = (
    "llama",
    "gemma2",
    "gpt_oss",
    "llama4_text",
    "deepseek_v3",
    "roberta",
    "mamba",
    "bloom",
    "gpt_neox",
)
PROMISED = 123


def agrees(model_type: str) -> bool:
    _, found, *note = line(model_type).split("\t")
    return (found == "", bool(note)) == (table()[model_type] == "", model_type in as_decoders())


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_sample_is_what_the_census_says(model_type):
    assert agrees(model_type), examined(model_type)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("model_type", sorted(table()))
def test_every_type_is_what_the_census_says(model_type):
    if model_type not in known_types():
        pytest.skip("not in this version of Transformers")
    assert agrees(model_type), examined(model_type)


def test_as_many_are_served_as_promised():
    assert sum(reason == "" for reason in table().values()) >= PROMISED


def test_a_reason_is_one_line_a_user_can_read():
    for reason in table().values():
        assert len(reason) < 160
