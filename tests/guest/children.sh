# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Programs that a guest's test starts, and how they go on; on top of lib.sh. No comparison sources
# this file, so a change of it has none ask the C driver anew.

# end_says NAME PID TEXT: a process that `start` of recover.sh started ends by itself, at most 30 s
# from now, and has said TEXT; how it ended and all that it said is in $out. Only the shell that
# started it can tell: in another one, as $(ended NAME PID) is, it is there until that one waits for
# it, and its status is 127.
end_says() {
    ended "$1" "$2" >/tmp/ended
    out=$(cat /tmp/ended)
    ! echo "$out" | grep -qE ': (still there|status 127)$' && echo "$out" | grep -q "$3"
}

# begun CONDITION FILE CMD...: starts CMD in the background, with its output in FILE, and waits
# until CONDITION, a command, succeeds, at most 200 s; $begun is the process. It reads what is
# written to file descriptor 3. As in `tried`, it has two more tries where the C driver, which is
# the stage, has wiped its page tables.
begun() {
    condition=$1 file=$2; shift 2
    for attempt in 1 2 3; do
        faults_after=$(dmesg --raw | wc -l)
        rm -f /tmp/line; mkfifo /tmp/line
        "$@" </tmp/line >"$file" 2>&1 &
        begun=$!
        exec 3>/tmp/line
        until=$(($(date +%s) + 200))
        while [ "$(date +%s)" -le $until ]; do
            $condition && return 0
            kill -0 $begun 2>/dev/null || break
            sleep 0.1
        done
        kill -0 $begun 2>/dev/null && return 1
        exec 3>&-
        wait $begun
        [ "$(state)" != serving ] && dmesg --raw | tail -n +"$((faults_after + 1))" |
            grep -E "$of_a_fault" >/tmp/fault || return 1
        cat /tmp/fault >>/tmp/dmesg.faults
        echo "figure: try $attempt of '$*' on the C driver met a page fault" >&2
    done
    return 1
}
