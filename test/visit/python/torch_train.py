"""PyTorch: a few steps of training a small network, and how long they take."""

from say import MEASURE, VISITING, answer, times, torch

t = torch()
wide = 4096 if MEASURE and VISITING else 256
model = t.nn.Sequential(t.nn.Linear(wide, wide), t.nn.GELU(), t.nn.LayerNorm(wide), t.nn.Linear(wide, 10)).cuda()
optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
x = t.randn(512, wide).cuda()
y = t.randint(0, 10, (512,)).cuda()


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = t.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


losses = [float(step()) for _ in range(5)]
answer("losses", losses, 1e-4)
answer("gradient's norm", float(model[0].weight.grad.norm()), 1e-3)
if MEASURE:
    times("training step", step, t.cuda.synchronize, 200 if VISITING else 5)
