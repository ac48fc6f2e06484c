# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Processes that end, and leave pages in VRAM to a child (tests/programs/src/svm/left.txt). On top
# of lib.sh.

driver=/sys/bus/pci/drivers/amdgpu
address=$(basename "$(readlink -f /sys/class/drm/card0/device)")
count() { sed -n "s/^$1 //p" /sys/kernel/debug/amdkfd/counts; }

# none WHAT: there is none of it, 20 s from now at the latest.
none() {
    for _ in $(seq 100); do
        [ "$(count "$1")" = 0 ] && return 0
        sleep 0.2
    done
    echo "there are $(count "$1") $1"
    return 1
}

# leave CASE: a process ends, and leaves pages in VRAM to a child, which looks at them when it may.
# What both say is in /tmp/left.
leave() {
    rm -f /tmp/look
    kfd-tests svm --xnack left --case "$1" >/tmp/left 2>&1 || { tail -n 2 /tmp/left; return 1; }
    ! grep -E '^child: (check|read)' /tmp/left
}

# look: the child may.
look() { touch /tmp/look; }

# sees LINE SECONDS: the child says so, at most so long from now.
sees() {
    for _ in $(seq $(($2 * 10))); do
        grep -qxF "child: $1" /tmp/left && return 0
        sleep 0.1
    done
    tail -n 2 /tmp/left
    return 1
}

# unbind, bind: the GPU, within a time that is too long.
unbind() { timeout 150 sh -c "echo $address >$driver/unbind"; }
bind() { timeout 150 sh -c "echo $address >$driver/bind"; }

# timed WHAT CMD...: CMD succeeds; $took: the seconds that it took.
timed() {
    begin=$(date +%s)
    check "$@"
    took=$(($(date +%s) - begin))
}
# at_most WHAT SECONDS: $took.
at_most() {
    if [ $took -le "$2" ]; then ok "$1: $took s"; else not_ok "$1: it took $took s"; fi
}

# lost NUMBER SECONDS: the child finds so many pages, all but a few, to be zeros (read) or wrong
# (check): a page that could not be moved when it should have been is in the system's memory.
lost() {
    for _ in $(seq $(($2 * 10))); do
        line=$(grep -E '^child: (read|check) ' /tmp/left) && break
        sleep 0.1
    done
    found=$(echo "$line" | sed 's/^.*m [0-9]*: //; s/^.*m: //' | tr '|' '\n' |
        sed -nE 's/^ *[0-9]+\+([0-9]+) 0x0 *$/\1/p; s/^([0-9]+) wrong$/\1/p' |
        awk '{ pages += $1 } END { print pages + 0 }')
    [ "$found" -le "$1" ] && [ "$found" -ge $(($1 - 64)) ] || { echo "$found: $line"; return 1; }
}
