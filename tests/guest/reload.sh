# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Sourced by the tests of stock amdgpu's reset and reload.

vadd() { timeout 100 kfdctl run vadd --elements 4096 --timeout 30; }

# recover: a MODE1 reset as an administrator asks for it; then the GPU computes.
recover() {
    before=$(dmesg | grep -c 'GPU reset([0-9]*) succeeded')
    cat "$(ls /sys/kernel/debug/dri/0000:*/amdgpu_gpu_recover | head -n 1)" >/dev/null
    for _ in $(seq 100); do
        [ "$(dmesg | grep -c 'GPU reset([0-9]*) succeeded')" -gt "$before" ] && break
        sleep 0.2
    done
    equal "one more reset succeeded" "$(dmesg | grep -c 'GPU reset([0-9]*) succeeded')" \
        $((before + 1))
    check "vadd after a reset" vadd
}

# reload N: the driver goes and comes; then the GPU computes.
reload() {
    check "rmmod, cycle $1" unload amdgpu
    served_by nobody
    check "modprobe, cycle $1" load_amdgpu
    for _ in $(seq 100); do [ -e /dev/kfd ] && break; sleep 0.2; done
    check "vadd, cycle $1" vadd
}

# rebind N: the driver leaves the GPU and takes it again, which is quicker; then the GPU computes.
rebind() {
    device=$(grep -l '^0x1002$' /sys/bus/pci/devices/*/vendor | head -n 1)
    device=$(basename "$(dirname "$device")")
    check "unbind, cycle $1" sh -c "echo $device >/sys/bus/pci/drivers/amdgpu/unbind"
    check "bind, cycle $1" sh -c "echo $device >/sys/bus/pci/drivers/amdgpu/bind"
    check "vadd after binding, cycle $1" vadd
}
