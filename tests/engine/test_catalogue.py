"""What `octavo models` says: docs/models.md says the same, and it is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_gguf import tiny_gguf
from tiny_models import tiny_model

from octavo.engine import catalogue
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import NATIVE, TEXT_PARTS
from octavo.models.families import FAMILIES

DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_has_the_tables_that_the_command_prints() -> None:
    """Else: octavo models --markdown, between the two comments."""
    found = re.search(r"<!-- what .* prints -->\n(.*)<!-- end -->", DOCS.read_text(), re.DOTALL)
    assert found is not None and found[1] == catalogue.markdown()


def test_every_known_type_is_in_one_place() -> None:
    served, refused = catalogue.others()
    own = {*NATIVE, *TEXT_PARTS}
    known = catalogue.census.table().keys()
    assert sorted([*served, *refused, *(own & known)]) == sorted(known)
    assert len(known) == 196
    assert len(known) - len(refused) >= 123 + 12, (
        "those that Transformers' interface serves, hybrids"
    )


@pytest.mark.parametrize("name", NATIVE)
def test_each_family_is_where_the_table_says(name: str) -> None:
    assert callable(FAMILIES.load(name))


def test_a_folder_and_a_file(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, "qwen3")
    tiny_gguf(tmp_path / "m.gguf", model)
    folder = catalogue.examine(ModelFiles("a", tmp_path))
    assert (folder.model_type, folder.refused) == ("qwen3", {})
    file = catalogue.examine(ModelFiles("b", tmp_path / "m.gguf"))
    assert (file.model_type, file.refused) == (
        "qwen3",
        {"transformers": "Transformers reads folders, not GGUF files"},
    )
    assert folder.runs and file.runs


def test_a_folder_without_some_tensors(tmp_path: Path) -> None:
    tiny_model(tmp_path, "llama")
    config = tmp_path / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 4')
    )
    found = catalogue.examine(ModelFiles("a", tmp_path))
    assert "lacks" in found.refused["native"] and "lacks" in found.refused["torch"]
    assert found.refused["native"] in str(found)


def test_sizes_that_the_kernels_do_not_read(tmp_path: Path) -> None:
    tiny_model(tmp_path, "deepseek_v3", qk_nope_head_dim=16)
    found = catalogue.examine(ModelFiles("a", tmp_path))
    assert "qk_nope_head_dim to be a multiple of 32, got 16" in found.refused.pop("native")
    assert found.runs and found.refused == {}


def test_the_text_part_of_a_model_that_also_sees(tmp_path: Path) -> None:
    tiny_model(tmp_path, "qwen3")
    config = tmp_path / "config.json"
    text = json.loads(config.read_text())
    config.write_text(json.dumps({"model_type": "paligemma", "text_config": text}))
    found = catalogue.examine(ModelFiles("a", tmp_path))
    assert not found.runs
    assert "a: text part of paligemma, qwen3 (Qwen3)" in str(found)
