"""CuPy: elementwise kernels, reductions, raw kernels, a matrix product."""

from say import answer, need, skip

np = need("numpy")
cp = need("cupy")
try:
    cp.zeros(1)
except Exception as e:
    skip(f"CuPy can't start: {type(e).__name__}: {e}")

x = cp.arange(1 << 16, dtype=cp.float32)
answer("sum", float(x.sum()), 1e-6)
answer("sine's sum", float(cp.sin(x).astype(cp.float64).sum()), 1e-6)
answer("sorted", cp.sort((x * 7919) % 1009)[:8].get().tolist())
answer("largest", int((x % 1009).argmax()))

double = cp.RawKernel('extern "C" __global__ void twice(int *x) { x[threadIdx.x] *= 2; }', "twice")
ints = cp.arange(64, dtype=cp.int32)
double((1,), (64,), (ints,))
answer("raw kernel", ints.get().tolist())

a = (cp.arange(256 * 256, dtype=cp.float32).reshape(256, 256) % 17) / 17
b = (cp.arange(256 * 256, dtype=cp.float32).reshape(256, 256) % 13) / 13
answer("product's trace", float(cp.trace(a @ b)), 1e-5)
answer("product is right", bool(np.allclose((a @ b).get(), a.get() @ b.get(), rtol=1e-4)))
