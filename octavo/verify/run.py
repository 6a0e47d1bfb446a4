"""`octavo verify MODEL`: is every request answered with the same bits, however it is scheduled?"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from itertools import product

from octavo.base.errors import ConfigError, ModelError
from octavo.base.flags import take
from octavo.base.log import configure
from octavo.base.progress import progress
from octavo.base.settings import EngineSettings, ModelSettings
from octavo.bench.report import check_json, write_json
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.text.tokenizer import load_tokenizer
from octavo.verify.asked import FULL, QUICK, TEXTS
from octavo.verify.cells import CELLS, Cell, by_head
from octavo.verify.matrix import Column, Matrix
from octavo.verify.report import Report, now

QUICK_KV = ("auto", "int8")
FULL_KV = ("auto", "float32", "bfloat16", "float16", "int8")


def run(options: argparse.Namespace) -> int:
    """Run, print, and write a file if asked; the exit code: 0 where every cell holds.

    Raises:
        ConfigError: an option is impossible, or the model cannot be had.
    """
    configure(logging.ERROR)
    check_json(options.json)
    settings = EngineSettings.flat(**take(options, ModelSettings))
    files = locate(settings.model.model, code=settings.model.trust_remote_code)
    kv_dtypes = options.kv_dtypes or (QUICK_KV if options.quick else FULL_KV)
    formats = list(product(options.quantizations or ["auto"], kv_dtypes))
    cells = (*CELLS, by_head(options.eagle)) if options.eagle else CELLS
    report = verify(settings, files, formats, quick=options.quick, cells=cells)
    print(report.text())
    write_json(options.json, report.as_dict())
    return 0 if report.holds else 1


def verify(
    settings: EngineSettings,
    files: ModelFiles,
    formats: Sequence[tuple[str, str]],
    *,
    quick: bool,
    cells: Sequence[Cell] = CELLS,
) -> Report:
    """`formats` are values of `quantization` and `kv_dtype`.

    Raises:
        CapacityError: the model does not fit.
        ConfigError: the model cannot be had in any of the formats.
    """
    texts = _texts(settings, files)
    columns: dict[str, Column] = {}
    refused: dict[str, str] = {}
    with progress(len(formats) * len(cells), "verify", " cells") as bar:
        for quantization, kv_dtype in formats:
            wanted = _with(settings, quantization=quantization, kv_dtype=kv_dtype)
            try:
                matrix = Matrix(wanted, files, QUICK if quick else FULL, texts, quick)
            except ConfigError as error:
                refused[f"{quantization}, KV {kv_dtype}"] = str(error)
                bar.update(len(cells))
                continue
            settings = _with(settings, model_impl=_implementation(matrix.runner))
            if matrix.name in columns:
                bar.update(len(cells))
            else:
                columns[matrix.name] = matrix.run(cells, bar)
    if not columns:
        raise ConfigError("; ".join(refused.values()))
    return Report(files.name, list(columns.values()), refused, quick, now())


def _implementation(runner: str) -> str:
    """What `model_impl` calls it: a format that it lacks is not to be had by another one."""
    return runner.split()[0].lower()


def _texts(settings: EngineSettings, files: ModelFiles) -> list[list[int]]:
    """Nothing where the model has no tokenizer."""
    try:
        tokenizer = load_tokenizer(files, settings.model.tokenizer)
    except ModelError:
        return []
    return [tokenizer.encode(text) for text in TEXTS]


def _with(settings: EngineSettings, **changes: str) -> EngineSettings:
    return EngineSettings.flat(model=settings.model.model, **(settings.options() | changes))
