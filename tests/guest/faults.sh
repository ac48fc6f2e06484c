# SPDX-License-Identifier: GPL-2.0 OR MIT
# What the tests of faults share: the module that records coverage and makes faults, where the kernel does neither, and
# our driver with a record. Then `kfd-tests faults` with the arguments of `faults`.
. "$(dirname "$0")/lib.sh"

[ -e /proc/self/fail-nth ] || check "faults can be made" insmod "$share/faults.ko"
check "our driver, with a record" insmod $module
# Its first process leaves what amdgpu keeps.
check "vadd" kfdctl run vadd -n 4097

# faults ARGUMENTS...
faults() {
    kfd-tests faults "$@" >/tmp/faults 2>&1 || failed=1
    grep -E '^(ok|not ok|figure)' /tmp/faults
    [ $failed = 0 ] || grep -vE '^(ok|not ok|figure)' /tmp/faults | sed 's/^/# /'
    check "vadd after the faults" kfdctl run vadd -n 4097
    check "rmmod after the faults" unload
}
