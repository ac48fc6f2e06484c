# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=bash
# The steps of compare/hip-matrix and compare/hip-matrix-buffers: sourced.
export TMPDIR=/tmp
status=0
for setting in "0 0" "0 1" "1 0" "1 1"; do
    export HSA_ENABLE_SDMA=${setting% *} HSA_ENABLE_INTERRUPT=${setting#* }
    echo "HSA_ENABLE_SDMA=$HSA_ENABLE_SDMA HSA_ENABLE_INTERRUPT=$HSA_ENABLE_INTERRUPT"
    /mnt/share/hip_programs all || status=1
done
exit $status
