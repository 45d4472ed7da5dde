#!/bin/sh
# Compiles each kernel to PTX with Debian 12's clang, which neither needs nor
# finds a CUDA toolkit. One fixed version, so that the output is reproducible.
set -eu
cd "$(dirname "$0")"
out=${1:-.}

for source in *.cu; do
	clang-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx64 \
		-nocudainc -nocudalib --target=x86_64-linux-gnu -fms-extensions -Wall -Wextra -Werror \
		-O3 -S -o "$out/zz_${source%.cu}.ptx" "$source"
done
