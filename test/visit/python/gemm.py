"""Matrix products by cuBLAS, through PyTorch or else CuPy."""

import importlib.util

from say import VISITING, answer, figure, need, times, torch


def report(name, multiply, wait, n):
    import time

    multiply()
    wait()
    rounds = 20 if VISITING else 2
    begin = time.perf_counter()
    for _ in range(rounds):
        multiply()
    wait()
    figure(name, 2 * n**3 * rounds / (time.perf_counter() - begin) / 1e12, "TFLOP/s")
    times(name + ", each waited for", multiply, wait, 50 if VISITING else 2)


sizes = (512, 4096, 8192) if VISITING else (128,)
if importlib.util.find_spec("torch"):
    t = torch()
    for kind in (t.float32, t.bfloat16):
        for n in sizes:
            a, b = (t.randn(n, n, device="cuda", dtype=kind) for _ in range(2))
            out = t.empty_like(a)
            report(f"{n} cubed, {kind}", lambda: t.matmul(a, b, out=out), t.cuda.synchronize, n)
            answer(f"{n} cubed, {kind}: norm", float(out.float().norm()), 1e-3)
else:
    cp = need("cupy")
    for n in sizes:
        a, b = (cp.random.default_rng(1).random((n, n), dtype=cp.float32) for _ in range(2))
        report(f"{n} cubed, float32", lambda: a @ b, cp.cuda.Device().synchronize, n)
