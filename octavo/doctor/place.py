"""What can be wrong around a model: port, cache folder, what is left in it, permissions."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from octavo.base.errors import ConfigError
from octavo.base.settings import ServerSettings
from octavo.doctor.finding import Finding, ok, warning, wrong
from octavo.files.model_files import ModelFiles
from octavo.serve.run import bind


def place_findings(files: ModelFiles, server: ServerSettings, cache: Path) -> Iterator[Finding]:
    yield _port(server)
    yield _writable(cache)
    yield _left_over(cache)
    yield _permissions(files)


def _port(server: ServerSettings) -> Finding:
    try:
        bind(server.host, server.port).close()
    except ConfigError as error:
        return warning("port", str(error), "end what listens there, or give another --port")
    return ok("port", f"{server.port} on {server.host} is free")


def _writable(cache: Path) -> Finding:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        return warning(
            "cache folder",
            f"cannot be written: {error.strerror}",
            "models cannot be pulled, and starts take longer; mend it, or set XDG_CACHE_HOME",
        )
    return ok("cache folder", "can be written")


def _left_over(cache: Path) -> Finding:
    """What interrupted pulls and starts have left."""
    found = [*cache.glob("models/*.partial")]
    found += [p for p in cache.glob("packed/*") if _of_dead_process(p.suffix.removeprefix("."))]
    if found:
        names = ", ".join(sorted(path.name for path in found))
        return warning("left over", names, "unless a pull is under way, remove them from the cache")
    return ok("left over", "nothing of interrupted pulls and starts")


def _of_dead_process(suffix: str) -> bool:
    return suffix.isdigit() and not psutil.pid_exists(int(suffix))


def _permissions(files: ModelFiles) -> Finding:
    paths = [files.path] if files.is_gguf else [files.path, *sorted(files.path.iterdir())]
    unread = [path.name for path in paths if not os.access(path, os.R_OK)]
    if unread:
        return wrong("permissions", f"cannot be read: {', '.join(unread)}", "chmod or chown them")
    loose = [path.name for path in paths if path.stat().st_mode & stat.S_IWOTH]
    if loose:
        return warning(
            "permissions", f"anybody can change {', '.join(loose)}", "chmod o-w, so that none does"
        )
    return ok("permissions", "the model's files can be read, and changed by their owners only")
