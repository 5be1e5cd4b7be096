"""A block of steps on two devices is the plain loop over its batches, written out on one."""

from helpers.tiny import N_STEPS, child

BOTH = f"""
import greybayes as gb

gb.configure(cores=2)
import equinox as eqx, jax, jax.numpy as jnp, jax.random as jr, numpy as np, optax
from greybayes.amortized import loop, training
from greybayes.amortized.training import BLOCK, Experiment, Settings
from greybayes.drawing import draw_joint

model = gb.get_model("linear-gaussian")
experiment = Experiment(model, model.design, {N_STEPS})
# Adam: its steps do not amplify what differs by rounding alone.
settings = Settings(
    steps=20, batch=8, chunk=2, devices=2, network="rnn", sizes={{"width": 4, "dense": 8}},
    head="bounded", optimiser="adam",
)
scaling = training.pilot(experiment, 0)[1]
weights = training.make_weights(experiment, settings.architecture, 0)
first = training.first_state(weights, settings)
block = training.make_block(experiment, settings, scaling, weights)
found, risk = block(loop.on_cores(first, 2), settings.steps)

# Each core draws its half of all batches of the block.
half = settings.batch // 2
lanes = jnp.arange(BLOCK * settings.batch, dtype=jnp.uint32)
key = jr.fold_in(jr.fold_in(jr.key(settings.seed), 2), 0)
u = experiment.shared
drawn = draw_joint(model, model.design, {N_STEPS}, key, lanes, None, u)
assert not np.asarray(drawn.trouble).any()

def by_step(a):
    return a.reshape(2, BLOCK, half, *a.shape[1:]).swapaxes(0, 1).reshape(BLOCK, 8, *a.shape[1:])

thetas, ys = by_step(drawn.theta), by_step(jnp.moveaxis(drawn.y, -1, 0))
arrays, static = eqx.partition(weights, eqx.is_inexact_array)

@jax.jit
def gradient_of(arrays, theta, y):
    def loss(arrays):
        whole = eqx.combine(arrays, static)
        summary = whole.network.summarise(scaling.channels(jnp, y, u))
        return whole.head.loss(summary, theta).mean()
    return jax.value_and_grad(loss)(arrays)

chain = training.optimiser(settings)
moments, losses = chain.init(arrays), []
for k in range(BLOCK):
    loss, gradient = gradient_of(arrays, thetas[k], ys[k])
    change, moments = chain.update(gradient, moments, arrays)
    step = training.rate(settings, jnp.asarray(k), settings.steps)
    arrays = optax.apply_updates(arrays, jax.tree.map(lambda c: -step * c, change))
    losses.append(loss)
moved = 0.0
leaves = (jax.tree.leaves(tree) for tree in (found.weights, arrays, first.weights))
for ours, theirs, before in zip(*leaves, strict=True):
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=2e-5)
    moved = max(moved, float(np.abs(theirs - before).max()))
assert moved > 1e-2  # A hundred times what may differ.
np.testing.assert_allclose(float(risk), np.mean(losses), rtol=1e-5)
assert int(found.step) == BLOCK
"""


def test_a_block_on_two_devices_is_the_plain_loop(compiled, tmp_path):
    done = child(BOTH, environment=compiled, folder=tmp_path)
    assert done.returncode == 0, done.stderr
