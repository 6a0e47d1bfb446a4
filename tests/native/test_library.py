"""Which variant of the native library is taken, and what is said where none can be."""

import pytest

from octavo.base.errors import ConfigError
from octavo.native import library as native
from octavo.native.library import library, usable_variants


@pytest.mark.parametrize("variant", usable_variants())
def test_each_variant_can_be_had_beside_the_others(variant: str) -> None:
    assert library(variant).variant == variant


def test_the_best_that_the_cpu_runs_is_taken() -> None:
    usable = usable_variants()
    assert usable[0] == "portable"
    assert library().variant == usable[-1]


def test_a_variant_for_another_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldCpu:
        variant = "portable"

        def cpu_variants(self) -> list[str]:
            return ["portable"]

    monkeypatch.setattr(native, "_load", lambda variant: OldCpu())
    assert library().variant == "portable"
    with pytest.raises(ConfigError, match="'avx2' is not one that this CPU runs"):
        library("avx2")


def test_a_variant_that_is_not_built_is_refused() -> None:
    with pytest.raises(ConfigError, match="'mmx' is not built; there are portable"):
        library("mmx")


def test_nothing_built_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "VARIANTS", ())
    with pytest.raises(ConfigError, match="`make install` builds it"):
        library()


@pytest.mark.parametrize("threads", [0, -1])
def test_a_pool_has_threads(threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        library().Pool(threads)


@pytest.mark.parametrize("nbytes", [2**60, 2**64 - 1])
def test_memory_that_no_machine_has_is_refused(nbytes: int) -> None:
    with pytest.raises(MemoryError):
        library().Memory(nbytes)
