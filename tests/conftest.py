"""Fixtures that every room's tests share, and the option that names outside workloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from octavo.base.errors import ModelError
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles

# A busy machine makes examples slow, not wrong.
settings.register_profile("octavo", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("octavo")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shared", type=Path, help="folder with workloads and traces from outside the project"
    )
    parser.addoption("--soak-minutes", type=float, default=30.0, help="how long the soak takes")


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest) -> Path:
    folder: Path | None = request.config.getoption("--shared")
    if folder is None:
        pytest.skip("needs --shared=FOLDER (workloads and traces)")
    return folder.resolve(strict=True)


@pytest.fixture(scope="session")
def default_model() -> ModelFiles:
    """SmolLM2-135M-Instruct, pulled once into the user's cache."""
    try:
        return locate("smollm2")
    except ModelError as error:
        pytest.skip(f"the default model cannot be fetched: {error}")
