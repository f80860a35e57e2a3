"""What evaluating a node costs, told from the tree alone: whether it may take steps, and how many in a macro.

Decides nothing of what a node means. The compiler goes by it in which order operands are asked.
"""

from __future__ import annotations

from engine.cel.ast import Binary, Expr, ListOf, Literal, Logic, Macro, parts


def spends(node: Expr) -> bool:
    """Whether evaluating a node may take steps, outside of any macro."""
    match node:
        case Macro():
            return True
        case Binary(operator="==" | "!=", left=left, right=right):
            if not isinstance(left, Literal) and not isinstance(right, Literal):
                return True
        case Binary(operator="in", right=right):
            if not _is_constant_list(right):
                return True
    return any(map(spends, parts(node)))


def cost_of(node: Expr) -> int:
    """Steps of evaluating a node once. Texts, inner macros and operands behind a first pay for themselves."""
    if isinstance(node, Macro):
        return 1 + cost_of(node.over)
    if isinstance(node, Logic):
        return 1 + cost_of(min(node.terms, key=spends))
    if _is_constant_list(node):
        return 1  # made once, and looked up at once
    return 1 + sum(map(cost_of, parts(node)))


def _is_constant_list(node: Expr) -> bool:
    return isinstance(node, ListOf) and all(isinstance(each, Literal) for each in node.items)
