"""Whether a function is affine, read from its program and never by trying points.

A function is affine in an argument where its derivative does not depend on it. JAX writes the
derivative down as a program; this module follows the argument through it. The answer is "no" where
the program does not show it, and never "yes" where it is not so.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal

# On which inputs a value depends.
_Inputs = frozenset[int]
_NONE: _Inputs = frozenset()


def is_affine(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function is affine in its first argument. Arguments may be shapes.

    >>> import jax.numpy as jnp
    >>> is_affine(lambda x, p: p[0] ** 2 * x + jnp.sin(p[1]), jnp.ones(2), jnp.ones(2))
    True
    >>> is_affine(lambda x: x * x, jnp.ones(2))
    False
    """
    return not depends(jax.jacfwd(function), *arguments)


def depends(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether any output of a function depends on its first argument.

    >>> depends(lambda x, y: (0.0 + y, x.shape[0]), jax.numpy.ones(3), 1.0)
    False
    """
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    n_first = len(jax.tree.leaves(arguments[0]))
    given = [frozenset([i]) if i < n_first else _NONE for i in range(len(program.invars))]
    return any(_follow(program, given))


def _follow(program: Jaxpr, given: Sequence[_Inputs]) -> list[_Inputs]:
    """On what each output of a program depends, where its inputs depend on what is given."""
    known: dict[Any, _Inputs] = dict(zip(program.invars, given, strict=True))

    def read(variable: Any) -> _Inputs:
        return _NONE if isinstance(variable, Literal) else known.get(variable, _NONE)

    for equation in program.eqns:
        found = _through(equation, [read(variable) for variable in equation.invars])
        known.update(zip(equation.outvars, found, strict=True))
    return [read(variable) for variable in program.outvars]


_CALLS = ("pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint")


def _through(equation: Any, given: list[_Inputs]) -> list[_Inputs]:
    inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    program = getattr(inner, "jaxpr", inner)
    name = equation.primitive.name
    if name in _CALLS and program is not None and len(program.invars) == len(given):
        return _follow(program, given)
    if name == "scan" and program is not None:
        return _through_scan(equation.params, program, given)
    # Anything else: every output may depend on every input.
    return [frozenset().union(*given)] * len(equation.outvars)


def _through_scan(params: Any, program: Jaxpr, given: list[_Inputs]) -> list[_Inputs]:
    """A loop: what is carried depends on what it was, until nothing is added."""
    n_constants, n_carried = params["num_consts"], params["num_carry"]
    constants, carried, rest = (
        given[:n_constants],
        given[n_constants : n_constants + n_carried],
        given[n_constants + n_carried :],
    )
    while True:
        found = _follow(program, [*constants, *carried, *rest])
        more = [a | b for a, b in zip(carried, found[:n_carried], strict=True)]
        if more == carried:
            return [*carried, *found[n_carried:]]
        carried = more
