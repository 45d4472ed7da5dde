"""What tools/visit reads: lines of JSON."""

import importlib
import json
import os
import sys
import time
import traceback

VISITING = os.environ.get("PEGASUS_VISIT") == "1"  # else a rehearsal, which is to be short
MEASURE = "--measure" in sys.argv


def answer(name, value, within=0):
    print(json.dumps({"answer": name, "value": value, "within": within}), flush=True)


def figure(name, value, unit):
    print(json.dumps({"figure": name, "value": value, "unit": unit}), flush=True)


def skip(why):
    print(json.dumps({"skip": why}), flush=True)
    sys.exit(0)


def need(name):
    """The module, or a skipped step: what isn't installed is no failure."""
    try:
        return importlib.import_module(name)
    except Exception as e:  # some fail in other ways than ImportError
        traceback.print_exc()
        skip(f"no {name}: {type(e).__name__}: {e}")


def times(name, call, wait, n):
    """Calls n times, waiting each time, and says how long half and 99 % took at most."""
    call()
    wait()
    took = []
    for _ in range(n):
        begin = time.perf_counter()
        call()
        wait()
        took.append((time.perf_counter() - begin) * 1e3)
    took.sort()
    figure(name + ", p50", took[n // 2], "ms")
    figure(name + ", p99", took[n * 99 // 100], "ms")


def torch():
    """PyTorch with a device, or a skipped step."""
    t = need("torch")
    try:
        if not t.cuda.is_available():
            skip(f"torch {t.__version__} sees no device")
        t.ones(1, device="cuda").item()
    except Exception as e:
        skip(f"torch {t.__version__} can't start: {type(e).__name__}: {str(e).splitlines()[0]}")
    t.manual_seed(1)
    t.backends.cuda.matmul.allow_tf32 = False
    t.use_deterministic_algorithms(True, warn_only=True)
    return t
