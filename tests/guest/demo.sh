#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The guest's part of "make demo": stops at the first thing that is not as it should be.
set -e
share=$(cd "$(dirname "$0")/.." && pwd)
export PATH="$share:$PATH"
line() { printf '  %-34s %s\n' "$1" "$2"; }
driver() {
    if [ -e /sys/module/amdkfd ]; then
        echo "amdkfd.ko $(modinfo -F version /run/amdkfd/amdkfd.ko 2>/dev/null) (Rust)"
    else
        echo "amdgpu's own (C)"
    fi
}

line "kernel" "$(uname -r)"
vendor=$(cat /sys/class/drm/card*/device/vendor | head -n 1)
device=$(cat /sys/class/drm/card*/device/device | head -n 1)
line "GPU" "$vendor:$device, driver amdgpu $(modinfo -F vermagic amdgpu | cut -d' ' -f1)"
test -c /dev/kfd
line "/dev/kfd is served by" "$(driver)"
insmod /run/amdkfd/amdkfd.ko
test -e /sys/module/amdkfd
line "after insmod amdkfd.ko" "$(driver)"
line "dmesg" "$(dmesg | grep -E 'amdkfd: (took|serves .dev)' | tail -n 1 | sed 's/^\[[^]]*\] //')"
kfdctl info | sed 's/^/    /'
for kernel in vadd saxpy reduce; do line "" "$(kfdctl run $kernel)"; done
line "rocminfo (Debian's, unmodified)" "$(rocminfo | grep -m 1 -E 'Name: +gfx' | xargs)"
line "HIP (Debian's, unmodified)" "$(hip_vadd)"
# A process that has ended is taken down behind its end, which takes a moment on a busy host.
for _ in $(seq 50); do rmmod amdkfd 2>/dev/null && break; sleep 0.2; done
test ! -e /sys/module/amdkfd
line "after rmmod amdkfd" "$(driver)"
line "HIP on the C driver" "$(hip_vadd)"
echo "all done"
