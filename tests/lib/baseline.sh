#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# In a guest: what `tools/baseline` runs. Prints a line of JSON for each program.
#
#   baseline.sh ROOT
set -u
export TMPDIR=/tmp
config=$(dirname "$(grep -l '^0x1002$' /sys/bus/pci/devices/*/vendor | head -n 1)")/config

# What was said to the GPU so far: reads, writes, doorbells (Documentation/model.md).
traffic() { od -An -tu4 -j280 -N12 "$config"; }

# program NAME CMD...: shows a gfx942 or computes the right results.
program() {
    local name=$1 passed=true before after started ended; shift
    read -ra before < <(traffic)
    started=$(date +%s%N)
    "$@" >/tmp/said 2>&1 </dev/null || passed=false
    ended=$(date +%s%N)
    read -ra after < <(traffic)
    [ $passed = true ] || { echo "== $name"; tail -n 20 /tmp/said; } >&2
    printf '{"root": "%s", "program": "%s", "passed": %s, "seconds": %d.%02d' \
        "$root" "$name" $passed $(((ended - started) / 1000000000)) \
        $(((ended - started) / 10000000 % 100))
    printf ', "reads": %d, "writes": %d, "doorbells": %d}\n' \
        $((after[0] - before[0])) $((after[1] - before[1])) $((after[2] - before[2]))
}

# lists WHAT CMD...: succeeds and says WHAT.
lists() {
    local what=$1; shift
    "$@" >/tmp/listed && grep -q "$what" /tmp/listed
}

root=$1
program rocminfo lists gfx942 rocminfo
program clinfo lists gfx942 clinfo
program rocm-smi lists Temp rocm-smi
for name in vadd saxpy reduce transpose gemm-naive gemm-tiled gemm-mfma-{f32,f16,bf16,f64,i8}; do
    program "$name" "/mnt/share/hip_$root" "$name" 1 65 1000
done
for setting in "0 0" "0 1" "1 0" "1 1"; do
    export HSA_ENABLE_SDMA=${setting% *} HSA_ENABLE_INTERRUPT=${setting#* }
    program "vadd SDMA=$HSA_ENABLE_SDMA INTERRUPT=$HSA_ENABLE_INTERRUPT" "/mnt/share/hip_$root" \
        vadd 1000
done
