"""Sets of values by name: schemas, constants, and what is said of them without a look inside."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.grammar.json_schema.documents import Place, Scope


@dataclass(frozen=True, slots=True)
class Schema:
    """What the schema at a place means when it is come to with a scope."""

    place: Place
    scope: Scope = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """One value."""

    text: str  # as JSON


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Expr


Expr = Schema | Constant | All | AnyOf | Not
TRUE = All(())
FALSE = AnyOf(())


def all_of(*parts: Expr) -> Expr:
    flat = [p for part in parts for p in (part.parts if isinstance(part, All) else (part,))]
    found = dict.fromkeys(flat)
    if FALSE in found or any(isinstance(p, Not) and p.part in found for p in found):
        return FALSE
    return next(iter(found)) if len(found) == 1 else All(tuple(found))


def any_of(*parts: Expr) -> Expr:
    flat = [p for part in parts for p in (part.parts if isinstance(part, AnyOf) else (part,))]
    found = dict.fromkeys(flat)
    if TRUE in found or any(isinstance(p, Not) and p.part in found for p in found):
        return TRUE
    return next(iter(found)) if len(found) == 1 else AnyOf(tuple(found))


def negated(part: Expr) -> Expr:
    if isinstance(part, Not):
        return part.part
    return FALSE if part == TRUE else TRUE if part == FALSE else Not(part)


def place_of(expr: Expr) -> Place | None:
    """Where the first schema in it is."""
    if isinstance(expr, Schema):
        return expr.place
    if isinstance(expr, Constant):
        return None
    parts = (expr.part,) if isinstance(expr, Not) else expr.parts
    return next((place for part in parts if (place := place_of(part))), None)
