"""PyTorch: a decoder of random weights writes tokens, with and without CUDA graphs."""

import time

from say import MEASURE, VISITING, answer, figure, torch

t = torch()
F = t.nn.functional
layers, wide, heads, words, length = (24, 2048, 16, 32000, 256) if MEASURE and VISITING else (2, 128, 4, 500, 32)


class Layer(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = t.nn.LayerNorm(wide), t.nn.LayerNorm(wide)
        self.qkv, self.out = t.nn.Linear(wide, 3 * wide), t.nn.Linear(wide, wide)
        self.up, self.down = t.nn.Linear(wide, 4 * wide), t.nn.Linear(4 * wide, wide)
        self.register_buffer("keys", t.zeros(1, heads, length, wide // heads))
        self.register_buffer("values", t.zeros(1, heads, length, wide // heads))

    def forward(self, x, at, seen):
        q, k, v = self.qkv(self.before(x)).view(1, 1, 3, heads, wide // heads).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.out(a.transpose(1, 2).reshape(1, 1, wide))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = t.nn.Embedding(words, wide)
        self.layers = t.nn.ModuleList(Layer() for _ in range(layers))
        self.last = t.nn.LayerNorm(wide)

    def forward(self, token, at):
        seen = (t.arange(length, device="cuda") <= at).view(1, 1, 1, length)
        x = self.words(token).view(1, 1, wide)
        for layer in self.layers:
            x = layer(x, at, seen)
        return (self.last(x) @ self.words.weight.T).argmax(-1).view(1)


model = Decoder().cuda().eval()
token = t.zeros(1, dtype=t.long, device="cuda")
at = t.zeros(1, dtype=t.long, device="cuda")


@t.no_grad()
def step():
    token.copy_(model(token, at))
    at.add_(1)


def write(one, name):
    token.zero_()
    at.zero_()
    written = []
    t.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(length - 1):
        one()
        if not MEASURE:
            written.append(int(token))
    t.cuda.synchronize()
    figure(name, (length - 1) / (time.perf_counter() - begin), "tokens/s")
    if written:
        answer(name, written)


write(step, "plain")
aside = t.cuda.Stream()
aside.wait_stream(t.cuda.current_stream())
with t.cuda.stream(aside):
    for _ in range(3):
        at.zero_()
        step()
t.cuda.current_stream().wait_stream(aside)
at.zero_()
graph = t.cuda.CUDAGraph()
try:
    with t.cuda.graph(graph):
        step()
except Exception as e:
    answer("graphs", f"{type(e).__name__}: {str(e).splitlines()[0]}")
else:
    write(graph.replay, "by a graph")
