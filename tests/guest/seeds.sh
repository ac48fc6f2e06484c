#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# seeds.sh SECONDS SCRIPT SEED...: runs a test once for each seed of the model's hostile mode, in
# the machine that tests/tools/hostile.test has started for it, whose modules are back as they were
# before each (MODULE_ARGS, AMDGPU_ARGS: their parameters). What a seed's run says stands behind
# "seed: N", also in the kernel's log, and "ended: STATUS SECONDS" behind that. After one that fails
# there is no other: the machine may not be what it was.
# From a copy, as scripts that have the machine sleep give the share up.
case $0 in
    /run/*) ;;
    *)
        mkdir -p /run/seeds/tests
        cp "$(dirname "$0")"/*.allow "$(dirname "$0")/lib.sh" "$0" /run/seeds/tests
        for file in kfdctl kfd-tests quick_ftrace.ko; do
            cp "$(dirname "$0")/../$file" /run/seeds
        done
        cd /
        exec "/run/seeds/tests/$(basename "$0")" "$@"
        ;;
esac
. "$(dirname "$0")/lib.sh"
limit=$1 script=$2
shift 2
# lib.sh of the script allows what tests/lib/hostile.allow lists.
export HOSTILE=1

# Every GPU's register (Documentation/model.md, "Fault injection"), which answers with the seed.
set_seed() {
    set_to=nothing
    for vendor in /sys/bus/pci/devices/*/vendor; do
        config=$(dirname "$vendor")/config
        [ "$(cat "$vendor")" = 0x1002 ] || continue
        printf "$(printf '\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) \
            $(($1 >> 24 & 255)))" | dd of="$config" bs=4 seek=73 conv=notrunc status=none
        set_to=$(od -An -tu4 -j292 -N4 "$config" | tr -d ' ')
        [ "$set_to" = "$1" ] || break
    done
    [ "$set_to" = "$1" ]
}

is_loaded() { grep -q "^$1 " /proc/modules; }

# As they were: amdgpu below our module.
bring_back() {
    [ "$had_kfd" = 1 ] || ! is_loaded amdkfd || unload || return 1
    [ "$had_amdgpu" = 1 ] || ! is_loaded amdgpu || unload amdgpu || return 1
    # shellcheck disable=SC2086
    [ "$had_amdgpu" = 0 ] || is_loaded amdgpu || load_amdgpu $AMDGPU_ARGS || return 1
    # shellcheck disable=SC2086
    [ "$had_kfd" = 0 ] || is_loaded amdkfd || load $MODULE_ARGS
}

# What the boot said, for whole_log: each seed's own log begins empty.
dmesg --raw >/run/boot.dmesg
had_kfd=0 had_amdgpu=0
is_loaded amdkfd && had_kfd=1
is_loaded amdgpu && had_amdgpu=1
for seed; do
    # The share is gone: the others get a machine of their own.
    [ -e "$script" ] || exit 0
    echo "seed: $seed"
    if ! out=$(bring_back 2>&1); then
        not_ok "the machine is not as it was: $out"
    elif ! set_seed "$seed"; then
        not_ok "a GPU does not take the seed"
    else
        dmesg -C
        # Files of the run before.
        find /tmp -mindepth 1 -maxdepth 1 ! -name bin -exec rm -rf {} +
        echo "<6>seed: $seed" >/dev/kmsg
        begun=$(date +%s)
        (cd / && timeout -k 10 "$limit" "$script")
        status=$?
        echo "ended: $status $(($(date +%s) - begun))"
        [ $status -eq 0 ] && continue
    fi
    exit 1
done
