"""Where schemas lie: documents, the resources in them ($id), anchors, and what references mean.

A `$dynamicRef` depends on the resources that were entered on the way to it. Of those only the
outermost definition of each dynamic anchor matters: that is a `Scope`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin

from octavo.grammar.json_schema.errors import SchemaError

ONE = [
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
]
LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


@dataclass(frozen=True, slots=True)
class Place:
    """A schema and where it is. Two places are equal when their pointers are."""

    pointer: str  # of the whole document: "#/properties/a"
    schema: Any = field(compare=False)
    base: str = field(compare=False)  # the URI of the resource it is in

    def child(self, *path: str | int) -> Place:
        """The schema below it at `path`."""
        pointer, schema, base = self.pointer, self.schema, self.base
        for step in path:
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
            schema = schema[step]
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
                base = _joined(base, schema["$id"]).rstrip("#")
        return Place(pointer, schema, base)

    def children(self) -> Iterator[Place]:
        """All schemas directly below."""
        if not isinstance(self.schema, dict):
            return
        for key, value in self.schema.items():
            if key in ONE:
                yield self.child(key)
            elif (key in LIST and isinstance(value, list)) or (
                key in MAP and isinstance(value, dict)
            ):
                steps = range(len(value)) if isinstance(value, list) else value
                yield from (self.child(key, step) for step in steps)

    def error(self, problem: str) -> SchemaError:
        return SchemaError(self.pointer, problem)


Scope = tuple[tuple[str, Place], ...]  # dynamic anchors, each with where it leads


class Documents:
    """A schema and the others that it may refer to, by URI. Nothing is ever fetched."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._others = others
        self._resources: dict[str, Place] = {}
        self._anchors: dict[tuple[str, str], Place] = {}
        self._dynamic: dict[str, dict[str, Place]] = {}
        self.root = self._add("", "#", schema)

    def resolve(self, place: Place, keyword: str) -> Place:
        """Where the reference leads that `keyword` of this schema has.

        Raises:
            SchemaError: it is no reference, or nothing in the documents is meant.
        """
        reference = place.schema[keyword]
        if not isinstance(reference, str):
            raise place.error(f"{keyword} must be a text")
        uri, _, fragment = _joined(place.base, reference).partition("#")
        resource = self._resource(uri)
        found = resource and self._within(resource, unquote(fragment))
        if found is None:
            raise place.error(f"{keyword}: {reference!r} is not in the schema; nothing is fetched")
        return found

    def resolve_dynamic(self, place: Place, scope: Scope) -> Place:
        """The same for `$dynamicRef`."""
        found = self.resolve(place, "$dynamicRef")
        anchor = unquote(place.schema["$dynamicRef"].partition("#")[2])
        if self._dynamic.get(found.base, {}).get(anchor) != found:
            return found
        return dict(scope).get(anchor, found)

    def entered(self, place: Place, scope: Scope) -> Scope:
        """The scope within the resource of `place`, when it is come to from `scope`."""
        anchors = self._dynamic.get(place.base)
        return tuple(sorted((anchors | dict(scope)).items(), key=_name)) if anchors else scope

    def _resource(self, uri: str) -> Place | None:
        if uri not in self._resources and uri in self._others:
            self._add(uri, f"{uri}#", self._others[uri])
        return self._resources.get(uri)

    def _add(self, uri: str, pointer: str, schema: Any) -> Place:
        named = schema.get("$id") if isinstance(schema, dict) else None
        base = _joined(uri, named).rstrip("#") if isinstance(named, str) else uri
        root = Place(pointer, schema, base)
        self._resources[uri] = root
        waiting = [root]
        while waiting:
            place = waiting.pop()
            self._index(place)
            waiting.extend(place.children())
        return root

    def _index(self, place: Place) -> None:
        if not isinstance(place.schema, dict):
            return
        if isinstance(place.schema.get("$id"), str):
            self._resources.setdefault(place.base, place)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = place.schema.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((place.base, name), place)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(place.base, {}).setdefault(name, place)

    def _within(self, resource: Place, fragment: str) -> Place | None:
        if not fragment.startswith("/"):
            return self._anchors.get((resource.base, fragment)) if fragment else resource
        place = resource
        for part in fragment[1:].split("/"):
            step: str | int = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place.schema, list) and part.isdecimal():
                step = int(part)
            try:
                place = place.child(step)
            except (KeyError, IndexError, TypeError):
                return None
        return place


def _name(entry: tuple[str, Place]) -> str:
    return entry[0]


def _joined(base: str, reference: str) -> str:
    """`urljoin` knows no fragment of a URN."""
    if reference.startswith("#"):
        return base.partition("#")[0] + reference
    return urljoin(base, reference)
