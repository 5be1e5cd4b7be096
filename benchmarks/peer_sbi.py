"""The `sbi` package's neural posterior estimation on M2, in a Python of its own.

    python peer_sbi.py TEST.npz OUT.npz SECONDS

Its default density estimator (a masked autoregressive flow) behind a GRU embedding net, trained
epoch by epoch on simulations of the prior until the time is over; then the log-density of the true
theta and the mean of 256 draws, for each record of the test set. Simulations are made by NumPy, and
their time is part of the training time, as ours is.
"""

import sys
import time

import numpy as np
import torch
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform

N_SIMULATIONS = 50_000
LOW, HIGH = [0.0, 0.1, 0.0, 0.0], [1.0, 2.0, 1.0, 1.0]


class Gru(torch.nn.Module):
    """Two layers of 40 units as in the paper; the last state is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(1, 40, num_layers=2, batch_first=True)

    def forward(self, y):
        return self.gru(y.unsqueeze(-1))[0][:, -1]


def simulate(theta, rng, n_steps=200):
    """M2: x_1 = 0, u_k = cos(1.2 k)."""
    x, y = np.zeros(len(theta)), np.empty((len(theta), n_steps))
    for k in range(n_steps):
        y[:, k] = theta[:, 1] * x**2 + np.sqrt(theta[:, 3]) * rng.normal(size=len(theta))
        x = theta[:, 0] * x / (0.04 * x**2 + 1) + np.cos(1.2 * (k + 1))
        x = x + np.sqrt(theta[:, 2]) * rng.normal(size=len(theta))
    return y


def main(test, out, seconds):
    """Train until the time is over, and judge."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    begun = time.perf_counter()
    prior = BoxUniform(torch.tensor(LOW), torch.tensor(HIGH))
    theta = prior.sample((N_SIMULATIONS,))
    y = torch.as_tensor(simulate(theta.numpy(), rng), dtype=torch.float32)
    inference = NPE(prior, density_estimator=posterior_nn("maf", embedding_net=Gru()))
    inference.append_simulations(theta, y)
    epochs, estimator = 0, None
    while time.perf_counter() - begun < seconds:
        epochs += 1
        estimator = inference.train(
            training_batch_size=200,
            max_num_epochs=epochs,
            stop_after_epochs=10**6,
            resume_training=epochs > 1,
        )
    trained = time.perf_counter() - begun
    data = np.load(test)
    y = torch.as_tensor(data["y"], dtype=torch.float32)
    theta = torch.as_tensor(data["theta"], dtype=torch.float32)
    with torch.no_grad():
        parts = [slice(i, i + 100) for i in range(0, len(y), 100)]
        log_prob = torch.cat([estimator.log_prob(theta[i][None], y[i])[0] for i in parts])
        means = torch.cat([estimator.sample((256,), y[i]).mean(0) for i in parts])
    told = {"log_prob": log_prob.numpy(), "means": means.numpy()}
    np.savez(out, **told, seconds=trained, epochs=epochs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
