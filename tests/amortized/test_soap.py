"""SOAP: Adam where there is no matrix, Adam in the right basis where there is one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from greybayes.amortized.soap import scale_by_soap

RNG = np.random.default_rng(0)


def run(optimiser, gradients, jit=False):
    """The steps that an optimiser makes of a sequence of gradients, and its last state."""
    state = optimiser.init(jax.tree.map(jnp.zeros_like, gradients[0]))
    update = jax.jit(optimiser.update) if jit else optimiser.update
    steps = []
    for gradient in gradients:
        step, state = update(gradient, state)
        steps.append(step)
    return steps, state


def draws(*shape, count=25):
    return [jnp.asarray(g) for g in RNG.normal(size=(count, *shape)).astype(np.float32)]


# No basis: a vector, a tensor, a matrix whose sides are 1 or longer than 512.
@pytest.mark.parametrize("shape", [(6,), (2, 3, 2), (1, 600), (514, 530), ()])
def test_without_a_basis_it_is_adam(shape):
    gradients = draws(*shape)
    ours, _ = run(scale_by_soap(), gradients, jit=True)
    # The first gradient only sets the basis: Adam that has not seen it.
    adam, _ = run(optax.scale_by_adam(b1=0.95, b2=0.95, eps=1e-8), gradients[1:], jit=True)
    np.testing.assert_array_equal(ours[0], 0)
    for a, b in zip(ours[1:], adam, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(600, 3), (3, 600), (1, 5), (512, 2)])
def test_a_side_too_long_for_a_basis_is_left_as_it_is(shape):
    steps, state = run(scale_by_soap(), draws(*shape, count=12), jit=True)
    basis = state.bases[0]
    for side, length in zip(basis, shape, strict=True):
        assert (side is None) == (not 1 < length <= 512)
        if side is not None:
            np.testing.assert_allclose(side.q.T @ side.q, np.eye(length), atol=1e-5)
    assert steps[-1].shape == shape
    assert np.isfinite(steps[-1]).all()
    assert np.abs(steps[-1]).max() > 0


def rotation(n, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def test_turning_the_problem_turns_the_steps():
    """What makes it more than Adam: it does not depend on the basis the weights are written in."""
    u, v = rotation(5, 1), rotation(5, 2)
    gradients = RNG.normal(size=(400, 5, 5)) * np.array([10, 3, 1, 0.3, 0.1])

    def steps(optimiser):
        """Those of the turned problem, turned back, beside those of the problem itself."""

        def all_steps(gradients):
            def step(state, gradient):
                change, state = optimiser.update(gradient, state)
                return state, change

            return jax.lax.scan(step, optimiser.init(jnp.zeros((5, 5))), gradients)[1]

        with jax.enable_x64(True):
            plain, turned = (
                jax.jit(all_steps)(jnp.asarray(g)) for g in (gradients, u @ gradients @ v.T)
            )
        return np.asarray(plain), u.T @ np.asarray(turned) @ v

    plain, back = steps(scale_by_soap())
    np.testing.assert_allclose(back, plain, atol=1e-5)
    plain, back = steps(optax.scale_by_adam())
    assert np.abs(back - plain).max() > 0.1


A, B = (rotation(8, s) @ np.diag(np.geomspace(1, 0.01, 8)) @ rotation(8, s + 1) for s in (3, 5))
BEST = np.random.default_rng(7).normal(size=(8, 8))


def final_loss(scale, n_steps):
    """|A (W - W*) B|^2 after so many steps, over its start: the best of three learning rates."""

    def loss(w):
        return ((A @ (w - BEST) @ B) ** 2).sum()

    def descend(rate):
        schedule = optax.cosine_decay_schedule(1.0, n_steps)
        optimiser = optax.chain(scale, optax.scale_by_schedule(schedule))

        def step(carried, _):
            w, state = carried
            change, state = optimiser.update(jax.grad(loss)(w), state, w)
            return (w - rate * change, state), None

        start = jnp.zeros((8, 8))
        (w, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=n_steps)
        return loss(w) / loss(start)

    descend = jax.jit(descend)
    return min(float(descend(rate)) for rate in (0.03, 0.1, 0.3))


def test_a_badly_conditioned_matrix_needs_far_fewer_steps_than_with_adam():
    """A quarter of the steps, and still nearer; both sides of condition 100, in turned axes."""
    assert final_loss(scale_by_soap(), 400) < final_loss(optax.scale_by_adam(0.95, 0.95), 1600) / 5


TREE = {"w": (4, 3), "b": (3,), "k": (2, 2, 2), "long": (2, 600)}


def tree_draws(count=12):
    return [
        {name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in TREE.items()}
        for _ in range(count)
    ]


def test_jit_equals_no_jit():
    gradients = tree_draws(6)
    ours, state = run(scale_by_soap(every=5), gradients)
    theirs, jitted = run(scale_by_soap(every=5), gradients, jit=True)
    for a, b in zip(jax.tree.leaves((ours, state)), jax.tree.leaves((theirs, jitted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_the_state_is_a_tree_of_arrays_that_keeps_its_shape():
    """So that a checkpoint can hold it, and a loop carry it."""
    optimiser, gradients = scale_by_soap(), tree_draws(3)
    first = optimiser.init(gradients[0])
    _, last = run(optimiser, gradients, jit=True)
    leaves, structure = jax.tree.flatten(last)
    assert structure == jax.tree.structure(first)
    for before, after in zip(jax.tree.leaves(first), leaves, strict=True):
        assert isinstance(after, jax.Array)
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
    assert int(last.count) == 3


def test_a_state_that_was_saved_goes_on_to_the_same_bits():
    optimiser, gradients = scale_by_soap(), tree_draws()
    whole, _ = run(optimiser, gradients, jit=True)
    _, half = run(optimiser, gradients[:6], jit=True)
    leaves, structure = jax.tree.flatten(half)
    state = jax.tree.unflatten(structure, [jnp.asarray(np.asarray(leaf)) for leaf in leaves])
    update = jax.jit(optimiser.update)
    for gradient, expected in zip(gradients[6:], whole[6:], strict=True):
        step, state = update(gradient, state)
        jax.tree.map(np.testing.assert_array_equal, step, expected)


def test_a_weight_that_never_has_a_gradient_stays_where_it_is():
    zeros = [jnp.zeros((4, 3))] * 25
    steps, state = run(scale_by_soap(), zeros, jit=True)
    np.testing.assert_array_equal(np.stack(steps), 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
