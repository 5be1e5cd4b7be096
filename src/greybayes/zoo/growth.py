"""The nonlinear growth model and the variants that the paper studies.

    x_{k+1} = theta1 x_k + theta2 x_k / (theta3 x_k^2 + theta4) + theta5 u_k + w_k
    y_k     = theta6 x_k^2 + v_k
    w_k ~ N(0, theta7),  v_k ~ N(0, theta8),  x_1 = 0,  u_k = cos(1.2 k)

theta7 and theta8 are variances. Once the states are known, both equations are linear in the gains
theta1, theta2, theta5 and theta6: where theta3 and theta4 are fixed, the most likely values of all
others have a closed form.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.errors import ModelError
from greybayes.inputs import Cosine
from greybayes.model import Model
from greybayes.noise import Known
from greybayes.prior import Fixed, Parameter
from greybayes.regression import moments, regress
from greybayes.zoo import growth_sweep


class Growth(Model):
    """Nonlinear growth model with all eight parameters free (the paper's general model)."""

    theta1 = Parameter(dist.Uniform(0.0, 1.0), doc="linear feedback")
    theta2 = Parameter(dist.Uniform(0.0, 30.0), doc="gain of the saturating feedback")
    theta3 = Parameter(dist.Uniform(0.01, 1.5), doc="curvature of the saturation")
    theta4 = Parameter(dist.Uniform(0.5, 1.5), doc="offset of the saturation")
    theta5 = Parameter(dist.Uniform(0.0, 10.0), doc="gain of the input")
    theta6 = Parameter(dist.Uniform(0.01, 2.0), doc="gain of the squared output")
    theta7 = Parameter(dist.Uniform(0.0, 1.5), doc="variance of the process noise", variance=True)
    theta8 = Parameter(
        dist.Uniform(0.0, 1.0), doc="variance of the measurement noise", variance=True
    )
    states, inputs, outputs = ("x",), ("u",), ("y",)
    design = Cosine(omega=1.2)

    def initial(self, u, p):
        return Known(0.0)

    def transition(self, x, u, p, t):
        mean = p.theta1 * x + p.theta2 * x / (p.theta3 * x**2 + p.theta4) + p.theta5 * u
        return dist.Normal(mean, jnp.sqrt(p.theta7))

    def observation(self, x, u, p, t):
        return dist.Normal(p.theta6 * x**2, jnp.sqrt(p.theta8))

    def statistics(self, x, after, y, u, p, t):
        if {"theta3", "theta4"} & set(self.prior.parameters):
            return None
        saturated = x / (p.theta3 * x**2 + p.theta4)
        return moments(x, saturated, u, after), moments(x**2, y)

    def sweep(self, key, theta, x, y, u):
        for method in ("initial", "transition", "observation", "prepare"):
            if getattr(type(self), method) is not getattr(Growth, method):
                raise ModelError(
                    f"{type(self).__name__} has its own {method}, and the sweep of Growth knows "
                    "that of Growth only; write a method sweep, too, or leave out sweeps."
                )
        return growth_sweep.sweep(self, key, theta, x, y, u)

    def maximise(self, sums, p):
        feedback, theta7 = regress(self, sums[0], p, "theta1", "theta2", "theta5")
        output, theta8 = regress(self, sums[1], p, "theta6")
        return {**feedback, **output, "theta7": theta7, "theta8": theta8}


class Growth1(Growth):
    """Growth model with unknown noise variances: M1 of the paper, as its figures were made."""

    theta1 = Fixed(0.5)
    theta2 = Fixed(25.0)
    theta3 = Fixed(1.0)
    theta4 = Fixed(1.0)
    theta5 = Fixed(8.0)
    theta6 = Fixed(0.05)
    theta7 = Parameter(dist.Uniform(0.1, 1.5), doc="variance of the process noise", variance=True)
    theta8 = Parameter(
        dist.Uniform(0.0, 1.0), doc="variance of the measurement noise", variance=True
    )


class Growth1Text(Growth1):
    """M1 as the paper's text prints it, with theta6 = 1; its figures used 0.05."""

    theta6 = Fixed(1.0)


class Growth2(Growth):
    """Simplified growth model with four unknowns: M2 of the paper."""

    theta1 = Fixed(0.0)
    theta2 = Parameter(dist.Uniform(0.0, 1.0), doc="gain of the saturating feedback")
    theta3 = Fixed(0.04)
    theta4 = Fixed(1.0)
    theta5 = Fixed(1.0)
    theta6 = Parameter(dist.Uniform(0.1, 2.0), doc="gain of the squared output")
    theta7 = Parameter(dist.Uniform(0.0, 1.0), doc="variance of the process noise", variance=True)
    theta8 = Parameter(
        dist.Uniform(0.0, 1.0), doc="variance of the measurement noise", variance=True
    )
