"""Where an answer is in its grammar, and what it still takes to end it.

A position is a set of pairs: the state of the lexeme that is being written, and what must follow
it. What must follow is a stack that positions share, and each of its frames knows the fewest tokens
that its nodes and all below it need. So a position knows what its shortest completion costs, and a
byte costs one look at the lexeme's automaton.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest

from octavo.base.errors import RequestError
from octavo.grammar.automaton import Automaton, State
from octavo.grammar.regex import EMPTY
from octavo.grammar.rules import Choice, Grammar, Lexeme, Node, Ref, Repeat, Seq, TokenLexeme
from octavo.grammar.spelling import IMPOSSIBLE, NO_TEXT, Spelling, spelled
from octavo.grammar.vocabulary import Vocabulary

MAX_FRAMES = 2**16  # remembered, to be shared by positions
MAX_PAIRS = 256  # of a position
MAX_NODES = 2**18  # looked at to find what may begin next

Piece = bytes | int  # a text, or one token
Pieces = tuple[Piece, ...]


class _Part:
    """A node with what it costs at least."""

    __slots__ = ("cost", "node", "parts", "pieces", "state")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.parts: tuple[_Part, ...] = ()
        self.state: State | None = None  # of a lexeme
        self.cost = IMPOSSIBLE
        self.pieces: Pieces = ()  # that cost this


class Frame:
    """What must follow: a part, of which `count` repetitions are written, and then `below`."""

    __slots__ = ("below", "cost", "count", "part", "spelling", "starts")

    def __init__(self, part: _Part, count: int, below: Frame | None, cost: int) -> None:
        self.part = part
        self.count = count
        self.below = below  # None: the end of the answer
        self.cost = cost
        self.starts: _Starts | None = None  # once somebody asked
        self.spelling: Spelling | None = None  # the same, of its cheapest way to go on

    @property
    def pieces(self) -> Pieces:
        """Of its cheapest way to go on, without what is below."""
        node = self.part.node
        if isinstance(node, Repeat):
            return self.part.parts[0].pieces * max(0, node.least - self.count)
        return self.part.pieces


Pair = tuple[State, Frame | None]


class _Starts:
    """How what a frame says may begin."""

    __slots__ = ("lexemes", "may_end", "tokens")

    def __init__(self) -> None:
        self.lexemes: list[Pair] = []
        self.tokens: dict[int, list[Frame | None]] = {}
        self.may_end = False


class Completion:
    """A grammar that knows what ends it.

    Raises:
        RequestError: nothing can be written by it, or a lexeme of it is too complex.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._automaton = Automaton(vocabulary)
        self._frames: dict[tuple[int, int, int], Frame] = {}
        self._rules = {name: self._part(node) for name, node in grammar.rules.items()}
        start = self._part(grammar.start)
        self._price(grammar)
        self._set_costs(start)
        if start.cost >= IMPOSSIBLE:
            raise RequestError("structured_outputs: no answer can satisfy it", "structured_outputs")
        done = self._automaton.state(EMPTY)
        assert done is not None
        self._done = done
        self.start = Position(((done, self._frame(start, 0, None)),))
        self.bound = self.shortest(self.start).counts[0]  # of the shortest answer that is known

    def push(self, position: Position, token_id: int) -> Position | None:
        """The position behind one more token; None where the grammar has no place for it. Of very
        many ways to read the answer, those are kept that cost least to end."""
        pairs = self._behind_token(position.pairs, token_id)
        if token_id not in self._vocabulary.special_ids:
            pairs |= self._behind_text(position.pairs, self._vocabulary.tokens[token_id])
        if len(pairs) > MAX_PAIRS:
            pairs = dict.fromkeys(nsmallest(MAX_PAIRS, pairs, key=_cost))
        return Position(tuple(pairs)) if pairs else None

    def shortest(self, position: Position) -> Spelling:
        """The shortest completion that is known: of the text that costs least, in as few tokens as
        can spell it."""
        state, frame = min(position.pairs, key=_cost)
        return self._spelled(frame).before(state.shortest, self._vocabulary)

    def tokens(self, position: Position) -> list[int]:
        """All tokens of the shortest completion."""
        state, frame = min(position.pairs, key=_cost)
        tokens: list[int] = []
        texts = state.shortest
        for piece in (*_pieces(frame), -1):
            if isinstance(piece, bytes):
                texts += piece
                continue
            tokens += spelled(texts, self._vocabulary) or ()
            tokens += (piece,) if piece >= 0 else ()
            texts = b""
        return tokens

    def may_end(self, position: Position) -> bool:
        """Whether the answer is whole there."""
        return any(state.accepts and self._starts(frame).may_end for state, frame in position.pairs)

    def _behind_text(self, pairs: Iterable[Pair], text: bytes) -> dict[Pair, None]:
        found = dict.fromkeys(pairs if text else ())
        for byte in text:
            found = dict.fromkeys(self._behind_byte(found, byte))
        return found

    def _behind_byte(self, pairs: Iterable[Pair], byte: int) -> Iterator[Pair]:
        after = self._automaton.after
        for state, frame in pairs:
            left = after(state, byte)
            if left is not None:
                yield left, frame
            if state.accepts:
                for begun, below in self._starts(frame).lexemes:
                    left = after(begun, byte)
                    if left is not None:
                        yield left, below

    def _behind_token(self, pairs: Iterable[Pair], token_id: int) -> dict[Pair, None]:
        return {
            (self._done, below): None
            for state, frame in pairs
            if state.accepts
            for below in self._starts(frame).tokens.get(token_id, ())
        }

    # ---- frames ----

    def _frame(self, part: _Part, count: int, below: Frame | None) -> Frame:
        key = (id(part), count, id(below))
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) >= MAX_FRAMES:  # no longer the same objects, but as good
                self._frames.clear()
            cost = _cost_left(part, count) + (below.cost if below is not None else 0)
            frame = self._frames[key] = Frame(part, count, below, cost)
        return frame

    def _spelled(self, frame: Frame | None) -> Spelling:
        unknown = []
        while frame is not None and frame.spelling is None:
            unknown.append(frame)
            frame = frame.below
        spelling = frame.spelling if frame is not None else NO_TEXT
        assert spelling is not None
        for above in reversed(unknown):
            for piece in reversed(above.pieces):
                spelling = spelling.before(piece, self._vocabulary)
            above.spelling = spelling
        return spelling

    def _starts(self, frame: Frame | None) -> _Starts:
        if frame is None:
            return _THE_END
        if frame.starts is None:
            frame.starts = self._find_starts(frame)
        return frame.starts

    def _find_starts(self, frame: Frame) -> _Starts:
        found = _Starts()
        seen: dict[int, Frame] = {}
        waiting: list[Frame | None] = [frame]
        while waiting:
            one = waiting.pop()
            if one is None:
                found.may_end = True
            elif id(one) not in seen and one.cost < IMPOSSIBLE:
                if len(seen) > MAX_NODES:
                    raise RequestError(
                        f"structured_outputs: more than {MAX_NODES} ways to go on",
                        "structured_outputs",
                    )
                seen[id(one)] = one
                waiting += self._opened(one, found)
        return found

    def _opened(self, frame: Frame, found: _Starts) -> list[Frame | None]:
        """Frames that begin where this one does; what begins at once goes into `found`."""
        part, node, below = frame.part, frame.part.node, frame.below
        if isinstance(node, Lexeme):
            assert part.state is not None, "it would be impossible"
            found.lexemes.append((part.state, below))
            return [below] if part.state.accepts else []
        if isinstance(node, TokenLexeme):
            found.tokens.setdefault(node.token_id, []).append(below)
            return []
        if isinstance(node, Ref):
            return [self._frame(self._rules[node.name], 0, below)]
        if isinstance(node, Choice):
            return [self._frame(child, 0, below) for child in part.parts]
        if isinstance(node, Repeat):
            return self._repeated(frame, node)
        for child in reversed(part.parts):
            below = self._frame(child, 0, below)
        return [below]

    def _repeated(self, frame: Frame, node: Repeat) -> list[Frame | None]:
        opened: list[Frame | None] = [frame.below] if frame.count >= node.least else []
        if node.most is None or frame.count < node.most:
            count = frame.count + 1 if node.most is not None else min(frame.count + 1, node.least)
            again = self._frame(frame.part, count, frame.below)
            opened.append(self._frame(frame.part.parts[0], 0, again))
        return opened

    # ---- costs ----

    def _part(self, node: Node) -> _Part:
        part = _Part(node)
        if isinstance(node, Lexeme):
            part.state = self._automaton.state(node.regex)
        elif isinstance(node, Repeat):
            part.parts = (self._part(node.node),)
        elif isinstance(node, Seq | Choice):
            part.parts = tuple(self._part(child) for child in node.nodes)
        return part

    def _price(self, grammar: Grammar) -> None:
        """Costs of all rules: the least that satisfy their definitions, found by lowering them as
        long as any can be."""
        users: dict[str, set[str]] = {name: set() for name in self._rules}
        for name, node in grammar.rules.items():
            for used in _references(node):
                users[used].add(name)
        waiting = dict.fromkeys(self._rules)
        while waiting:
            name = next(iter(waiting))
            del waiting[name]
            part = self._rules[name]
            before = _price(part)
            self._set_costs(part)
            if _price(part) < before:
                waiting.update(dict.fromkeys(users[name]))

    def _set_costs(self, part: _Part) -> None:
        node = part.node
        for child in part.parts:
            self._set_costs(child)
        if isinstance(node, Lexeme):
            if part.state is not None:
                part.cost, part.pieces = part.state.cost, (part.state.shortest,)
        elif isinstance(node, TokenLexeme):
            part.cost, part.pieces = 1, (node.token_id,)
        elif isinstance(node, Ref):
            rule = self._rules[node.name]
            part.cost, part.pieces = rule.cost, rule.pieces
        elif isinstance(node, Choice):
            best = min(part.parts, key=_price, default=part)
            if _price(best) < _price(part):
                part.cost, part.pieces = best.cost, best.pieces
        elif isinstance(node, Repeat):
            part.cost = min(IMPOSSIBLE, node.least * part.parts[0].cost)
            part.pieces = part.parts[0].pieces * node.least if part.cost < IMPOSSIBLE else ()
        elif isinstance(node, Seq):
            part.cost = min(IMPOSSIBLE, sum(child.cost for child in part.parts))
            whole = part.parts if part.cost < IMPOSSIBLE else ()
            part.pieces = tuple(piece for child in whole for piece in child.pieces)


class Position:
    """Where an answer is. Never changes."""

    __slots__ = ("cost", "pairs")

    def __init__(self, pairs: tuple[Pair, ...]) -> None:
        self.pairs = pairs
        self.cost = min(map(_cost, pairs))  # tokens that end the answer, or a few more than that


_THE_END = _Starts()
_THE_END.may_end = True


def _cost(pair: Pair) -> int:
    state, frame = pair
    return state.cost + (frame.cost if frame is not None else 0)


def _price(part: _Part) -> tuple[int, int]:
    """What is compared: of equal costs, fewer bytes are often fewer tokens, side by side with
    others."""
    return part.cost, sum(len(piece) for piece in part.pieces if isinstance(piece, bytes))


def _cost_left(part: _Part, count: int) -> int:
    if isinstance(part.node, Repeat):
        return min(IMPOSSIBLE, max(0, part.node.least - count) * part.parts[0].cost)
    return part.cost


def _pieces(frame: Frame | None) -> Iterator[Piece]:
    """Of the cheapest way to go on."""
    while frame is not None:
        yield from frame.pieces
        frame = frame.below


def _references(node: Node) -> Iterator[str]:
    if isinstance(node, Ref):
        yield node.name
    elif isinstance(node, Repeat):
        yield from _references(node.node)
    elif isinstance(node, Seq | Choice):
        for child in node.nodes:
            yield from _references(child)
