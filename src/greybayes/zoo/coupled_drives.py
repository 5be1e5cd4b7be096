"""Coupled electric drives: two motors, a belt, a pulley on a spring; its speed comes rectified.

    X(s) = K alpha omega0^2 / ((s + alpha) (s^2 + 2 xi omega0 s + omega0^2)) U(s)
    y_k  = |x(t_k)| + v_k,   v_k ~ N(0, noise_variance)

or, with theta' = (theta1, ..., theta4) of the same system in continuous time,

    d/dt (x1, x2, x3) = (x2, x3, theta4 x1 + theta3 x2 + theta2 x3 + theta1 u),   y = |x1| + v

discretised exactly for an input held over dt = 20 ms (zero-order hold), from rest. (Wigren and
Schoukens 2017.) The published prior is 20 % around (2.058, 5.347, 19.62, 0.1205).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from greybayes.continuous import HeldLinear, zero_order_hold
from greybayes.inputs import PRBS, Design
from greybayes.model import Model
from greybayes.noise import Known
from greybayes.prior import Parameter


class Physical(NamedTuple):
    """Static gain K, inverse time constant alpha, resonance omega0, damping xi."""

    K: Float[Array, ""]
    alpha: Float[Array, ""]
    omega0: Float[Array, ""]
    xi: Float[Array, ""]


class Polynomial(NamedTuple):
    """theta': the last row of the companion form."""

    theta1: Float[Array, ""]
    theta2: Float[Array, ""]
    theta3: Float[Array, ""]
    theta4: Float[Array, ""]


def to_polynomial(p: Physical) -> Polynomial:
    """theta' from (K, alpha, omega0, xi), by multiplying out the denominator.

    >>> [round(float(v), 2) for v in to_polynomial(Physical(2.0, 5.0, 20.0, 0.1))]
    [4000.0, -9.0, -420.0, -2000.0]
    """
    return Polynomial(
        theta1=p.K * p.alpha * p.omega0**2,
        theta2=-(p.alpha + 2 * p.xi * p.omega0),
        theta3=-(p.omega0**2 + 2 * p.xi * p.omega0 * p.alpha),
        theta4=-p.alpha * p.omega0**2,
    )


def to_physical(p: Polynomial) -> Physical:
    """(K, alpha, omega0, xi) from theta': -alpha is the real root of the denominator.

    Of three real roots (an overdamped spring) the slowest counts as that of the drives.
    """
    roots = jnp.roots(jnp.stack([jnp.ones(()), -p.theta2, -p.theta3, -p.theta4]), strip_zeros=False)
    # float32 roots of a real pair have tiny imaginary parts; the real one has the least.
    is_real = jnp.abs(roots.imag) <= 1e-3 * jnp.abs(roots)
    alpha = jnp.min(jnp.where(is_real, -roots.real, jnp.inf))
    omega0 = jnp.sqrt(-p.theta4 / alpha)
    return Physical(-p.theta1 / p.theta4, alpha, omega0, (-p.theta2 - alpha) / (2 * omega0))


class _Prepared(NamedTuple):
    held: HeldLinear
    noise_variance: Float[Array, ""]


class _Drives(Model):
    """What both parametrisations share: the companion form from rest, rectified at the output."""

    states, inputs, outputs = ("x1", "x2", "x3"), ("u",), ("y",)
    units = {"u": "V", "y": "V"}
    dt: float = 0.02
    n_steps: int = 500
    design: Design | None = PRBS(amplitude=1.0, hold=5).fixed(1, 500, 0.02)

    def held(self, theta: Polynomial) -> HeldLinear:
        # In units of time of 1/scale the entries are of like size, which float32 needs; x2 and x3
        # are then derivatives by that time.
        scale = 20.0
        zero, one = jnp.zeros(()), jnp.ones(())
        last = jnp.stack([theta.theta4 / scale**3, theta.theta3 / scale**2, theta.theta2 / scale])
        a = jnp.stack([jnp.stack([zero, one, zero]), jnp.stack([zero, zero, one]), last])
        b = jnp.stack([zero, zero, theta.theta1 / scale**3])[:, None]
        return zero_order_hold(a, b, self.dt * scale)

    def initial(self, u, p):
        return Known(0.0)

    def transition(self, x, u, p, t):
        return Known(p.held.step(x, u))

    def observation(self, x, u, p, t):
        return dist.Normal(jnp.abs(x[0]), jnp.sqrt(p.noise_variance))


def _around(center) -> dist.Distribution:
    low, high = sorted((0.8 * center, 1.2 * center))
    return dist.Uniform(low, high)


_NOISE = Parameter(
    dist.Uniform(0.0, 0.01), unit="V^2", doc="variance of the measurement noise", variance=True
)


class CoupledDrives(_Drives):
    """Coupled electric drives with (K, alpha, omega0, xi), as the paper's code draws them."""

    K = Parameter(_around(2.058), doc="static gain")
    alpha = Parameter(_around(5.347), unit="1/s", doc="inverse time constant of the drives")
    omega0 = Parameter(_around(19.62), unit="rad/s", doc="resonance of spring and belt")
    xi = Parameter(_around(0.1205), doc="damping of spring and belt")
    noise_variance = _NOISE

    def prepare(self, p):
        held = self.held(to_polynomial(Physical(p.K, p.alpha, p.omega0, p.xi)))
        return _Prepared(held, p.noise_variance)


_CENTER = to_polynomial(Physical(2.058, 5.347, 19.62, 0.1205))  # pyright: ignore[reportArgumentType]


class CoupledDrivesTheta(_Drives):
    """Coupled electric drives with theta', as the paper's text draws them."""

    theta1 = Parameter(_around(_CENTER.theta1), doc="gain of the input")
    theta2 = Parameter(_around(_CENTER.theta2))
    theta3 = Parameter(_around(_CENTER.theta3))
    theta4 = Parameter(_around(_CENTER.theta4))
    noise_variance = _NOISE

    def prepare(self, p):
        held = self.held(Polynomial(p.theta1, p.theta2, p.theta3, p.theta4))
        return _Prepared(held, p.noise_variance)
