"""SQL92 expressions over the properties of a message, as RocketMQ's broker evaluates them.

Source: RocketMQ 5.3.3, module ``filter`` (``SelectorParser``, ``ComparisonExpression``). Properties
are strings; one that is compared with a number is converted to the type of that number. A message
does not match if the result is unknown (NULL), or if a conversion fails anywhere in the evaluation.

There are two differences: text behind the expression is refused and not ignored, and so are more
than 50 levels of parentheses and operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import copysign, inf, isnan
from typing import Any, Final, TypeAlias

import attrs

from lakelog.errors import SettingsError
from lakelog.message import StoredMessage
from lakelog_queues.finding.results import PlacedResult

_DECIMAL: Final = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


class Long(int):
    """A number of Java's type ``Long``; an ``int`` is one of ``Integer``."""


Value: TypeAlias = str | int | float | bool | None


class NoResult(Exception):
    """Values that cannot be compared; RocketMQ's evaluation fails, too."""


def integer(text: str, bits: int) -> int:
    """As ``Integer.valueOf`` and ``Long.valueOf``; raises :class:`NoResult`."""
    if not re.fullmatch(r"[+-]?\d+", text) or max(text) > "\uffff":
        raise NoResult
    try:
        found = int(text)
    except ValueError:  # more digits than Python converts
        raise NoResult from None
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise NoResult
    return found


def double(text: str) -> float:
    """As ``Double.valueOf``; raises :class:`NoResult`."""
    bare = text.strip("".join(map(chr, range(0x21))))
    decimal = _DECIMAL.fullmatch(bare)
    if decimal:
        return float(decimal[1])
    hexadecimal = _HEXADECIMAL.fullmatch(bare)
    if hexadecimal is None:
        raise NoResult
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -inf if bare.startswith("-") else inf


_CONVERSIONS: Final[dict[type, Callable[[str], Value]]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: integer(text, 32),
    Long: lambda text: integer(text, 64),
    float: double,
}


def order(left: Value, right: Value) -> int:
    """As Java's ``compareTo`` of two values; -1 for types that RocketMQ does not compare.

    Raises :class:`NoResult` if a string cannot be converted to the type of the other value.
    """
    one, other = type(left), type(right)
    if one is not other:
        if one is bool and other is str:
            raise NoResult  # RocketMQ's ClassCastException
        if isinstance(left, str):
            left = _CONVERSIONS[other](left)
        elif isinstance(right, str):
            right = _CONVERSIONS[one](right)
        elif bool in (one, other):
            return -1
    is_double = float in (one, other)
    first, second = _key(left, is_double=is_double), _key(right, is_double=is_double)
    return int(first > second) - int(first < second)


def _key(value: Value, *, is_double: bool) -> Any:
    """A key that sorts as Java does: -0.0 before 0.0; NaN is equal to itself, and the last."""
    if not is_double:
        return value
    assert isinstance(value, int | float)  # a string was converted
    number = float(value)
    return (1, 0.0, 1.0) if isnan(number) else (0, number, copysign(1.0, number))


Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], Value]

_MOST_LEVELS: Final = 50
_READ_AHEAD: Final = 256
"""Least number of messages that are read for a filter at once."""
_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*(?:[^*]|\*(?!/))*\*/)"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}
_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "<": (0).__gt__,
    "<=": (0).__ge__,
    ">": (0).__lt__,
    ">=": (0).__le__,
}
_MAY_FOLLOW_NOT: Final = {*_SEARCHES, "BETWEEN", "IN"}
_WORDS: Final = {*_CONSTANTS, *_MAY_FOLLOW_NOT, "AND", "OR", "NOT", "IS"}
_LEAST_DOUBLE: Final = 5e-324


class PropertyFilter:
    """A parsed expression; thread-safe.

    :ivar text: the expression

    >>> PropertyFilter("a > 5 AND region = 'eu'").matches({"a": "6", "region": "eu"})
    True
    """

    def __init__(self, text: str) -> None:
        """Parse; raises :class:`~lakelog.errors.SettingsError` with the place of the mistake."""
        self.text = text
        self._evaluate = _Parser(text).parse()

    def matches(self, properties: Properties) -> bool:
        """Whether the result is true, and neither false nor unknown."""
        try:
            return self._evaluate(properties) is True
        except NoResult:
            return False

    def read(self, get: Callable[[int], PlacedResult], most: int) -> PlacedResult:
        """At most ``most`` matching messages; ``get`` reads a given number of messages."""
        result = get(max(most, _READ_AHEAD))
        kept: list[StoredMessage] = []
        places: list[int] = []
        for at, message in zip(result.queue_offsets, result.messages, strict=True):
            if len(kept) == most:
                next_offset = places[-1] + 1
                break
            if self.matches(message.properties):
                kept.append(message)
                places.append(at)
        else:
            next_offset = result.next_offset
        return attrs.evolve(result, messages=kept, queue_offsets=places, next_offset=next_offset)


# --- expressions ---


@attrs.frozen
class _Term:
    """A part of an expression.

    :ivar is_boolean: whether it may stand for a condition
    :ivar levels: how deep operators are nested in it
    """

    evaluate: Evaluate
    is_boolean: bool = False
    levels: int = 0


@attrs.frozen
class _Property(_Term):
    """The value of a property."""


@attrs.frozen
class _Constant(_Term):
    """A literal."""

    value: Value = None

    @classmethod
    def of(cls, value: Value) -> _Constant:
        return cls(lambda _: value, value is None or isinstance(value, bool), 0, value)


def _condition(evaluate: Evaluate, *parts: _Term) -> _Term:
    return _Term(evaluate, True, 1 + max(each.levels for each in parts))


def _equal(left: _Term, right: _Term) -> _Term:
    one, other = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        found, wanted = one(properties), other(properties)
        if found is None:
            return True if wanted is None else None
        return wanted is not None and order(found, wanted) == 0

    return _condition(evaluate, left, right)


def _ordered(left: _Term, right: _Term, test: Callable[[int], bool]) -> _Term:
    one, other = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        found, wanted = one(properties), other(properties)
        if found is None or wanted is None:
            return None
        if isinstance(found, str) and isinstance(wanted, str):
            found, wanted = double(found), double(wanted)
        return test(order(found, wanted))

    return _condition(evaluate, left, right)


def _unless_unknown(term: _Term, test: Callable[[Value], bool]) -> _Term:
    """The result of ``test`` for the value of a term; unknown if that is."""
    inner = term.evaluate

    def evaluate(properties: Properties) -> Value:
        found = inner(properties)
        return None if found is None else test(found)

    return _condition(evaluate, term)


def _not(term: _Term) -> _Term:
    return _unless_unknown(term, lambda found: not found)


def _joined(terms: Sequence[_Term], decisive: bool) -> _Term:
    """OR if ``decisive`` is true, else AND: one such term decides, else an unknown one does."""
    if len(terms) == 1:
        return terms[0]
    parts = [each.evaluate for each in terms]

    def evaluate(properties: Properties) -> Value:
        result: Value = not decisive
        for part in parts:
            found = part(properties)
            if found is decisive:
                return decisive
            result = None if found is None else result
        return result

    return _condition(evaluate, *terms)


def _negative(term: _Term) -> _Term:
    inner = term.evaluate

    def evaluate(properties: Properties) -> Value:
        found = inner(properties)
        if isinstance(found, str | bool) or found is None:
            return None
        return -found if isinstance(found, float) else type(found)(-found)

    return _Term(evaluate, False, term.levels + 1)


def _search(term: _Term, text: str, test: Callable[[str, str], bool], negated: bool) -> _Term:
    """False, and not unknown, without a property and for an empty text; negated, too."""
    inner = term.evaluate

    def evaluate(properties: Properties) -> Value:
        found = inner(properties)
        return bool(text) and isinstance(found, str) and test(found, text) is not negated

    return _condition(evaluate, term)


# --- parsing ---


@attrs.frozen
class _Token:
    """A token of an expression.

    :ivar kind: a reserved word, a sign, or the name of a group of the pattern
    :ivar place: position of its first character
    """

    kind: str
    text: str
    place: int


class _Parser:
    """Recursive descent; each method parses the construct in its name, from the next token on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._levels = 0
        self._tokens: list[_Token] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._mistake(f"{text[place]!r} is not expected", place)
            kind, word = str(found.lastgroup), found[0]
            if kind == "sign" or (kind == "name" and word.upper() in _WORDS):
                kind = word.upper()
            if kind != "blank":
                self._tokens.append(_Token(kind, word, place))
            place = found.end()
        self._tokens.append(_Token("end", "the end", len(text)))

    def parse(self) -> Evaluate:
        """The whole expression."""
        found = self._boolean(self._or())
        self._expect("end", "AND, OR or the end")
        return found.evaluate

    def _or(self) -> _Term:
        terms = [self._and()]
        while self._take("OR"):
            terms.append(self._and())
        return self._checked(self._logic(terms, True))

    def _and(self) -> _Term:
        terms = [self._equality()]
        while self._take("AND"):
            terms.append(self._equality())
        return self._logic(terms, False)

    def _logic(self, terms: list[_Term], decisive: bool) -> _Term:
        return terms[0] if len(terms) == 1 else _joined(list(map(self._boolean, terms)), decisive)

    def _equality(self) -> _Term:
        left = self._comparison()
        while True:
            if self._take("IS"):
                negated = self._take("NOT")
                self._expect("NULL", "NULL")
                left = _equal(left, _Constant.of(None))
            elif self._next in ("=", "<>"):
                negated = self._step().kind == "<>"
                left = self._equal(left, self._comparison())
            else:
                return left
            left = self._checked(_not(left) if negated else left)

    def _comparison(self) -> _Term:
        left = self._unary()
        while True:
            negated = self._next == "NOT" and self._tokens[self._at + 1].kind in _MAY_FOLLOW_NOT
            if negated:
                self._step()
            if self._next in _ORDERS:
                test = _ORDERS[self._step().kind]
                left = _ordered(self._number(left), self._number(self._unary()), test)
            elif self._next in _SEARCHES:
                test_text = _SEARCHES[self._step().kind]
                left = _search(left, self._string(), test_text, negated)
            elif self._take("BETWEEN"):
                left = self._between(left, negated)
            elif self._take("IN"):
                left = self._in_list(left, negated)
            else:
                return left
            left = self._checked(left)

    def _between(self, left: _Term, negated: bool) -> _Term:
        low = self._number(self._unary())
        self._expect("AND", "AND")
        high = self._number(self._unary())
        if not negated and isinstance(low, _Constant) and isinstance(high, _Constant):
            self._check_bounds(low.value, high.value)
        left, signs = self._number(left), ("<", ">") if negated else (">=", "<=")
        pairs = zip((low, high), signs, strict=True)
        return _joined([_ordered(left, each, _ORDERS[sign]) for each, sign in pairs], negated)

    def _check_bounds(self, low: Value, high: Value) -> None:
        if order(high, low) < 0:
            raise self._mistake(f"{low} is more than {high}")

    def _in_list(self, left: _Term, negated: bool) -> _Term:
        if not isinstance(left, _Property):
            raise self._mistake("only a property can be in a list")
        self._expect("(", "'('")
        texts = {self._string()}
        while self._take(","):
            texts.add(self._string())
        self._expect(")", "',' or ')'")
        return _unless_unknown(left, lambda found: (found in texts) is not negated)

    def _unary(self) -> _Term:
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise self._mistake(f"there are more than {_MOST_LEVELS} levels")
        if self._take("+"):
            found = self._unary()
        elif self._take("-"):
            found = self._checked(_negative(self._unary()))
        elif self._take("NOT"):
            found = self._checked(_not(self._boolean(self._unary())))
        else:
            found = self._primary()
        self._levels -= 1
        return found

    def _primary(self) -> _Term:
        token = self._step()
        if token.kind == "(":
            found = self._or()
            self._expect(")", "')'")
            return found
        if token.kind == "name":
            return _Property(lambda properties: properties.get(token.text))
        if token.kind in _CONSTANTS:
            return _Constant.of(_CONSTANTS[token.kind])
        if token.kind == "string":
            return _Constant.of(token.text[1:-1].replace("''", "'"))
        if token.kind in ("integer", "float"):
            return _Constant.of(self._literal(token))
        raise self._mistake(f"{token.text} is not expected", token.place)

    def _literal(self, token: _Token) -> Value:
        """A number, if it has Java's range; RocketMQ refuses 0.0 as well."""
        if token.kind == "float":
            number = float(token.text)
            if _LEAST_DOUBLE <= number < inf:
                return number
        else:
            digits = token.text.rstrip("lL")
            for bits, kind in ((32, int), (64, Long)):
                with suppress(NoResult):
                    return kind(integer(digits, bits))
        raise self._mistake(f"{token.text} is out of range", token.place)

    def _string(self) -> str:
        text = self._expect("string", "a text in 'single quotes'").text
        return text[1:-1].replace("''", "'")

    # --- checks ---

    def _boolean(self, term: _Term) -> _Term:
        if term.is_boolean:
            return term
        if isinstance(term, _Property):  # a property is a string, and so never true
            return _unless_unknown(term, lambda _: False)
        raise self._mistake("a value stands where a condition is needed")

    def _number(self, term: _Term) -> _Term:
        if term.is_boolean or (isinstance(term, _Constant) and isinstance(term.value, str)):
            raise self._mistake("only numbers have an order")
        return term

    def _equal(self, left: _Term, right: _Term) -> _Term:
        constants = [each for each in (left, right) if isinstance(each, _Constant)]
        if any(each.value is None for each in constants):
            raise self._mistake("NULL is equal to nothing; use IS NULL")
        if len(constants) == 2 and left.is_boolean and not right.is_boolean:
            raise self._mistake("a condition is equal to no number or text")
        return _equal(left, right)

    def _checked(self, term: _Term) -> _Term:
        if term.levels > _MOST_LEVELS:
            raise self._mistake(f"there are more than {_MOST_LEVELS} levels")
        return term

    # --- tokens ---

    @property
    def _next(self) -> str:
        return self._tokens[self._at].kind

    def _step(self) -> _Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _take(self, kind: str) -> bool:
        is_next = self._next == kind
        self._at += is_next
        return is_next

    def _expect(self, kind: str, wanted: str) -> _Token:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise self._mistake(f"{wanted} is expected, not {token.text}", token.place)
        return self._step()

    def _mistake(self, problem: str, place: int | None = None) -> SettingsError:
        """The error; its place is that of the last token, unless given."""
        if place is None:
            place = self._tokens[max(self._at - 1, 0)].place
        return SettingsError(
            f"the expression {self._text!r} is wrong at character {place + 1}: {problem}",
            key="filter",
        )
