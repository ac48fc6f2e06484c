# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What the tests of a machine with a GPU that ours does not drive share; on top of lib.sh.

# The PCI address of the one GPU of graphics core 9.4.4, in $other, and what dmesg says of it.
find_other() {
    for device in /sys/bus/pci/drivers/amdgpu/0*; do
        [ "$(cat "$device"/ip_discovery/die/0/GC/0/revision)" = 4 ] && other=$(basename "$device")
    done
    kept_by_c=" $other: graphics core 9\.4\.4 .*; the C amdkfd keeps serving$"
    left_out=" $other is not served: graphics core 9\.4\.4 "
}

gpus() { grep -Lx 0 /sys/class/kfd/kfd/topology/nodes/*/gpu_id | wc -l; }

# both_compute WHEN: a process with a VM and memory on each of the two GPUs, which the C driver
# serves.
both_compute() {
    served_by c
    equal "both GPUs are served $1" "$(gpus)" 2
    for gpu in 0 1; do
        check "vadd on GPU $gpu $1" timeout 100 kfdctl run vadd -n 4097 --gpu $gpu
    done
}

# What ours has said since the last call, but for what it says of all attaching.
said() {
    dmesg | grep 'amdkfd: ' | tail -n +$((said_seen + 1)) |
        grep -vE 'waiting for amdgpu|serves GPU|took|gave|taints|verification'
    said_seen=$(dmesg | grep -c 'amdkfd: ')
}

# said_once WHAT PATTERN: that was one line, which matches.
said_once() {
    said >/tmp/said
    if [ "$(wc -l </tmp/said)" = 1 ] && grep -qE "$2" /tmp/said; then ok "$1"
    else not_ok "$1: dmesg has '$(cat /tmp/said)'"; fi
}
said_seen=0
echo 'amdkfd: [0-9a-f:.]+(: | is not served: )graphics core 9\.4\.4 ' \
    >>/tmp/dmesg.patterns
