"""The one switch of global state, and only when it is asked for."""

import os

from greybayes.errors import GreybayesError


def configure(cores: int | None = None) -> int:
    """Let JAX use this many CPU cores as devices: all of them by default. Returns the number.

    Call it before anything is computed: simulation and training then run on every core. The
    command line does so; a notebook may.

    >>> import jax
    >>> configure(jax.device_count()) == jax.device_count()
    True
    """
    if cores is not None and cores < 1:
        raise GreybayesError(f"cores is {cores}, expected 1 or more.")
    wanted = cores or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    wanted = wanted or os.cpu_count() or 1
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:
        if jax.device_count() != wanted:
            raise GreybayesError(
                f"JAX already runs on {jax.device_count()} device(s); call greybayes.configure "
                "before anything is computed, or start Python anew."
            ) from None
    return wanted
