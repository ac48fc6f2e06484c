# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Pages in VRAM that outlive their process: sourced after lib.sh.

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
# leave: a process ends, and leaves pages in VRAM to a child, which looks at them when it may.
leave() {
    rm -f /tmp/look
    kfd-tests svm --xnack left --case left >/tmp/left 2>&1 &&
        grep -qx 'gfill 0 2m 2: done' /tmp/left
}
# waiting: the child has not looked yet.
waiting() { grep -qx 'child: close: 0' /tmp/left && ! grep '^child: check' /tmp/left; }
# look: it does.
look() {
    touch /tmp/look
    for _ in $(seq 200); do
        grep -q '^child: check 0 2m 3: ' /tmp/left && return 0
        sleep 0.1
    done
    tail -n 4 /tmp/left
    return 1
}
# looked: it finds its memory.
looked() {
    look || return 1
    grep '^child: check' /tmp/left >/tmp/looked
    printf 'child: check 0 2m 2: 0 wrong\nchild: check 0 2m 3: 0 wrong\n' | cmp -s - /tmp/looked ||
        { tail -n 4 /tmp/left; return 1; }
}

# begin CASE FILE [MODE]: in the background, until it has reached the place and made the file.
begin() {
    rm -f /tmp/svm-*
    # shellcheck disable=SC2086
    kfd-tests svm $3 stays --case "$1" >/tmp/stays 2>&1 & stays=$!
    for _ in $(seq 600); do [ -e "/tmp/svm-$2" ] && break; sleep 0.1; done
    if [ "$(count blocks)" -gt 0 ]; then ok "$1: pages are out"
    else not_ok "$1: no page is out: $(tail -n 2 /tmp/stays | tr '\n' ' ')"; fi
}
# reached FILE: the case has made it.
reached() {
    for _ in $(seq 600); do [ -e "/tmp/svm-$1" ] && return 0; sleep 0.1; done
    tail -n 4 /tmp/stays
    return 1
}
said() { grep -F "$1" /tmp/stays | head -n 1; }
