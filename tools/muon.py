"""The Muon optimiser: momentum whose matrices are made near-orthogonal.

For the inner matrices of the model, where it was ahead of AdamW from the start
(training loss 4.8 against 5.4 after 75 steps). AdamW stays in use for
embeddings and norm weights.
"""

import torch


def orthogonalise(x):
    """x [n, rows, cols] -> matrices with all singular values near 1.

    Five steps of a quintic Newton-Schulz iteration, in bfloat16.
    """
    x = x.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    if tall:
        x = x.transpose(-1, -2)
    return x.float()


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; decoupled weight decay."""

    def __init__(self, matrices, lr, momentum=0.95, weight_decay=0.1):
        settings = {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay
        }
        super().__init__(matrices, settings)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            same_shape = {}
            for matrix in group["params"]:
                same_shape.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in same_shape.items():
                self._step_shape(group, shape, matrices)

    def _step_shape(self, group, shape, matrices):
        """All matrices of one shape at once."""
        beta = group["momentum"]
        ahead = []
        for matrix in matrices:
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            mean = state["momentum"].mul_(beta).add_(matrix.grad)
            ahead.append(matrix.grad + beta * mean)
        rate = group["lr"] * max(1, shape[0] / shape[1]) ** 0.5
        for matrix, change in zip(
            matrices, orthogonalise(torch.stack(ahead))
        ):
            matrix.mul_(1 - rate * group["weight_decay"])
            matrix.sub_(rate * change)
