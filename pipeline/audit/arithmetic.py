"""Arithmetic written as text, such as `(4 + 6) / 2` or `1 - C(3, 2) / C(4, 2)`, worked out."""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NONE = "none"
"""Stands for a figure that is null."""

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"C": math.comb, "sqrt": math.sqrt, "min": min, "max": max}


def value_of(text: str) -> float | None:
    """Return what a text of numbers, `+ - * / **`, `C(n, k)`, `sqrt`, `min` and `max` comes to; null for `none`.

    Raises:
        ValueError: there is anything else in it.
    """
    if text == NONE:
        return None
    return float(_value(ast.parse(text, mode="eval").body, text))


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, text), _value(right, text))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, text) for argument in arguments))
        case _:
            message = f"{ast.unparse(node)} in {text} is no arithmetic"
            raise ValueError(message)
