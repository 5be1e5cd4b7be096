"""The paper's network in PyTorch, as its code has it: the peer for training and for inference."""

import numpy as np
import torch
from torch import nn


class TorchGru(nn.Module):
    """GRU 2 x 40, a ReLU layer of 32, a linear map to theta."""

    def __init__(self, n_theta: int = 4, width: int = 40, depth: int = 2, dense: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(1, width, depth, batch_first=True)
        self.dense = nn.Linear(width, dense)
        self.out = nn.Linear(dense, n_theta)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        """Theta from y of shape (batch, steps, 1)."""
        states, _ = self.gru(y)
        return self.out(torch.relu(self.dense(states[:, -1])))


def torch_training_step(batch: int, n_steps: int):
    """A job: one step of Adam on a batch."""
    network = TorchGru()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    y = torch.randn(batch, n_steps, 1)
    theta = torch.rand(batch, 4)

    def job() -> None:
        optimiser.zero_grad()
        nn.functional.mse_loss(network(y), theta).backward()
        optimiser.step()

    return job


def torch_inference(y: np.ndarray):
    """A job: theta for all records."""
    network = TorchGru().eval()
    tensor = torch.tensor(y, dtype=torch.float32)

    def job() -> None:
        with torch.inference_mode():
            network(tensor)

    return job
