"""cuda-bindings: the driver API from Python, with a kernel that NVRTC compiles."""

import ctypes

from say import answer, need, skip

np = need("numpy")
need("cuda.bindings")
from cuda.bindings import driver, nvrtc  # noqa: E402

SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}
extern "C" __global__ void sum(const int *x, int *out, int n)
{
    __shared__ int part[256];
    int v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v += x[i];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k)
            part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *out = part[0];
}
"""


def do(result):
    if int(result[0]) != 0:
        raise SystemExit(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


try:
    program = do(nvrtc.nvrtcCreateProgram(SOURCE, b"visit.cu", 0, [], []))
except Exception as e:
    skip(f"NVRTC can't be loaded: {e}")

do(driver.cuInit(0))
device = do(driver.cuDeviceGet(0))
context = do(driver.cuDevicePrimaryCtxRetain(device))
do(driver.cuCtxSetCurrent(context))
answer("driver's version is at least 12.0", do(driver.cuDriverGetVersion()) >= 12000)

options = [b"--gpu-architecture=compute_75"]
do(nvrtc.nvrtcCompileProgram(program, len(options), options))
size = do(nvrtc.nvrtcGetPTXSize(program))
ptx = b" " * size
do(nvrtc.nvrtcGetPTX(program, ptx))
module = do(driver.cuModuleLoadData(np.char.array(ptx).ctypes.data))
saxpy = do(driver.cuModuleGetFunction(module, b"saxpy"))
add = do(driver.cuModuleGetFunction(module, b"sum"))

n = 1 << 16
x = np.arange(n, dtype=np.float32) / 7
y = np.ones(n, dtype=np.float32)
dx, dy = (do(driver.cuMemAlloc(x.nbytes)) for _ in range(2))
do(driver.cuMemcpyHtoD(dx, x.ctypes.data, x.nbytes))
do(driver.cuMemcpyHtoD(dy, y.ctypes.data, y.nbytes))
stream = do(driver.cuStreamCreate(0))


def launch(f, grid, block, values, types):
    do(driver.cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, (values, types), 0))


launch(saxpy, n // 256, 256, (2.5, dx, dy, n), (ctypes.c_float, None, None, ctypes.c_int))
do(driver.cuStreamSynchronize(stream))
got = np.empty_like(y)
do(driver.cuMemcpyDtoH(got.ctypes.data, dy, got.nbytes))
answer("saxpy is right", bool(np.allclose(got, 2.5 * x + y, rtol=1e-6)))
answer("saxpy's sum", float(got.astype(np.float64).sum()))

ints = np.arange(n, dtype=np.int32)
do(driver.cuMemcpyHtoD(dx, ints.ctypes.data, ints.nbytes))
launch(add, 1, 256, (dx, dy, n), (None, None, ctypes.c_int))
do(driver.cuStreamSynchronize(stream))
total = np.empty(1, dtype=np.int32)
do(driver.cuMemcpyDtoH(total.ctypes.data, dy, 4))
answer("sum", int(total[0]))
answer("sum is right", int(total[0]) == int(ints.sum(dtype=np.int32)))
