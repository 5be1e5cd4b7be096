"""Array types that several files share: shapes are part of every signature."""

import numpy as np
from jaxtyping import Array, Float, Key, UInt32

Theta = Float[Array, " param"]
"""The free parameters of a model as one vector, in the order of `model.prior.names`."""

Seed = Key[Array, ""] | int | np.integer
"""A JAX key, or an integer that makes one."""

Lanes = UInt32[Array, " batch"]
"""The numbers of the paths in a batch (see `_lanes`)."""
