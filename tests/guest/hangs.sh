# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# hangs COUNT: so often a queue of the first GPU hangs under load, with a process that waits for
# exceptions and one that only waits for events, while others compute on the second GPU; what each
# saw, and what is left.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/recover.sh"
. "$(dirname "$0")/children.sh"
. "$(dirname "$0")/inject.sh"

# How many there were. The first ones are soon no longer in the kernel's log.
resets() {
    last=$(dmesg | sed -n 's/.*GPU reset(\([0-9]*\)) succeeded.*/\1/p' | tail -n 1)
    echo "${last:-0}"
}

# Computes on the second GPU until /tmp/enough is there: a line for each process, which dispatches
# 100 times. During a reset /dev/kfd asks to come again.
others() {
    while [ ! -e /tmp/enough ]; do
        out=$(kfdctl run vadd -n 4097 --gpu 1 --repeat 100 --timeout 100 2>&1)
        if echo "$out" | grep -q ' 0 wrong'; then echo right
        elif ! echo "$out" | grep -q 'open on /dev/kfd: Resource temporarily unavailable'; then
            echo "$out" | tail -n 1
        else sleep 0.1; fi
    done
}

# one NUMBER: says nothing where all is as it should be.
one() {
    before=$(resets) applied=$(injected)
    start_waiting told --timeout 100; told=$pid
    start_waiting idle --timeout 100 --idle; idle=$pid
    start_spinning load; load=$pid
    inject_flags 1
    start guilty kfdctl run vadd -n 4097 --timeout 100; guilty=$pid
    for try in $(seq 300); do [ "$(injected)" -gt "$applied" ] && break; sleep 0.1; done
    inject_flags 0
    [ "$(injected)" -gt "$applied" ] || echo "hang $1: it was not injected"
    # The end of the process unmaps the queue, which does not stop.
    kill -9 $guilty; wait $guilty 2>/dev/null
    for try in $(seq 600); do [ "$(resets)" -gt "$before" ] && break; sleep 0.1; done
    [ "$(resets)" -gt "$before" ] || echo "hang $1: no reset"
    for who in told idle; do
        eval "end_says $who \$$who 'hardware exception: .*memory lost 1'" ||
            echo "hang $1: $who: $out"
    done
    end_says load $load 'the GPU takes no more packets from the queue' ||
        echo "hang $1: load: $out"
    out=$(computes "after hang $1"); echo "$out" | grep -q 'vadd computes$' || echo "$out"
}

hangs() {
    out=$(computes "before"); echo "$out" | grep -q 'computes$' || not_ok "$out"
    begin=$(date +%s)
    rm -f /tmp/enough
    others >/tmp/others 2>&1 & others=$!
    for hang in $(seq "$1"); do
        out=$(one "$hang" 2>&1)
        if [ -n "$out" ]; then not_ok "$out"; break; fi
    done
    echo "figure: $(resets) resets in $(($(date +%s) - begin)) s"
    [ $failed = 1 ] || ok "$1 hangs: processes were told, and new ones computed after each"
    : >/tmp/enough; wait $others
    went=$(grep -c '^right$' /tmp/others)
    out=$(grep -v '^right$' /tmp/others | head -n 1)
    if [ -z "$out" ] && [ "$went" -ge "$1" ]; then
        ok "the others went on: $went processes on the second GPU"
    else not_ok "the others: $went right, and: $out"; fi
    check "nothing is left of the processes" nothing_left
    check "rmmod" unload
    served_by c
    exit $failed
}
