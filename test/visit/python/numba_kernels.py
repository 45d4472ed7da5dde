"""numba-cuda: kernels compiled from Python, shared memory, atomics, reductions, streams."""

from say import answer, need, skip

np = need("numpy")
need("numba")
cuda = need("numba.cuda")
try:
    if not cuda.is_available():
        skip("numba sees no device")
    cuda.current_context()
except Exception as e:
    skip(f"numba can't start: {type(e).__name__}: {e}")

import numba  # noqa: E402


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i] % 16, 1)


@cuda.jit
def transpose(a, b):
    tile = cuda.shared.array((16, 17), numba.float32)
    x, y = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[y, x]
    cuda.syncthreads()
    b[cuda.blockIdx.x * 16 + cuda.threadIdx.y, cuda.blockIdx.y * 16 + cuda.threadIdx.x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


n = 1 << 14
x = np.arange(n, dtype=np.float32)
y = np.ones(n, dtype=np.float32)
stream = cuda.stream()
dx, dy = cuda.to_device(x, stream), cuda.to_device(y, stream)
saxpy[n // 128, 128, stream](np.float32(0.5), dx, dy)
got = dy.copy_to_host(stream=stream)
stream.synchronize()
answer("saxpy is right", bool((got == np.float32(0.5) * x + y).all()))

bins = np.zeros(16, dtype=np.int32)
values = np.arange(n, dtype=np.int32) * 7919 % 1009
histogram[n // 128, 128](values, bins)
answer("histogram", bins.tolist())
answer("histogram is right", bool((bins == np.bincount(values % 16, minlength=16)).all()))

a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
b = np.empty_like(a)
transpose[(4, 4), (16, 16)](a, b)
answer("transpose is right", bool((a.T == b).all()))


@cuda.reduce
def total(p, q):
    return p + q


answer("sum", float(total(x.astype(np.float64))))
