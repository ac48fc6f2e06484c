# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Sourced by tests that make the GPU model fail: sets flags of its fault injection
# (Documentation/model.md). The registers are in configuration space, at 0x108 (flags), 0x10c
# (count) and 0x110 (argument).

# The first GPU that the KFD names: amdgpu brings several up at once, in any order. Without a KFD
# the first on the bus.
inject_minor=$(grep -hs '^drm_render_minor' /sys/class/kfd/kfd/topology/nodes/*/properties |
    grep -vm 1 ' 0$')
inject_config=/sys/class/drm/renderD${inject_minor#* }/device/config
if [ ! -e "$inject_config" ]; then
    inject_vendor=$(grep -l '^0x1002$' /sys/bus/pci/devices/*/vendor | head -n 1)
    inject_config=$(dirname "$inject_vendor")/config
fi

# inject_flags VALUE: sets all 32 flags.
inject_flags() {
    printf "$(printf '\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) \
        $(($1 >> 24 & 255)))" |
        dd of="$inject_config" bs=4 seek=66 conv=notrunc status=none
}

# inject_argument VALUE: what va=arg means.
inject_argument() {
    for half in 68 69; do
        value=$(($1 >> 32 * (half - 68) & 0xffffffff))
        printf "$(printf '\\%03o' $((value & 255)) $((value >> 8 & 255)) $((value >> 16 & 255)) \
            $((value >> 24 & 255)))" |
            dd of="$inject_config" bs=4 seek=$half conv=notrunc status=none
    done
}

# injected: how often a rule has applied.
injected() { od -An -tu4 -j268 -N4 "$inject_config" | tr -d ' '; }
