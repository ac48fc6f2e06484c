#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The guest's part of the captures of `kfdctl top` in tools.md, which has the command that runs it:
# two programs compute, kfdctl runs in tmux, keys are pressed, and the screens are printed.
# build/top has tmux and the libraries that the root lacks.
export TERM=tmux-256color LC_ALL=C.UTF-8 LD_LIBRARY_PATH=$PWD/build/top
tmux="build/top/tmux -f /dev/null"

# wait_for PATTERN FILE: at most a minute.
wait_for() {
    for turn in $(seq 600); do
        grep -q "$1" "$2" && return
        sleep 0.1
    done
}

# screen TITLE: what is shown.
screen() {
    echo "== $1"
    $tmux capture-pane -p -t top
}

mkfifo /tmp/line
build/guest/hip_gemm 64 </tmp/line >/tmp/gemm 2>&1 &
exec 3>/tmp/line
wait_for told /tmp/gemm
build/guest/kfdctl bench --repeat 100000 >/dev/null 2>&1 &
bench=$!
$tmux new-session -d -s top -x 100 -y 24 build/guest/kfdctl top
sleep 4
screen "all"
for keys in "Down Down Enter:ring" "Enter:packet" "h:keys"; do
    $tmux send-keys -t top ${keys%:*}
    sleep 2
    screen "${keys#*:}"
done
$tmux kill-server
kill $bench
echo go >&3
wait
