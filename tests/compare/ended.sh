#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# ended.sh SCRIPT: the script of a comparison, and then the end of what it has begun: its last
# process must be gone within 20 s, and ours must let itself be removed, as what goes wrong with
# either is otherwise never seen. Exits as the script did.
"$@"
status=$?
processes() { ls /sys/class/kfd/kfd/proc 2>/dev/null | wc -l; }
for _ in $(seq 200); do
    [ "$(processes)" != 0 ] || break
    sleep 0.1
done
[ "$(processes)" = 0 ] || echo "not ok - $(processes) processes are left" >&2
if [ -e /sys/module/amdkfd ]; then
    for _ in $(seq 200); do
        said=$(rmmod amdkfd 2>&1) && break
        case $said in *"in use"* | *temporarily*) sleep 0.1 ;; *) break ;; esac
    done
    [ ! -e /sys/module/amdkfd ] || echo "not ok - rmmod at the end: $said" >&2
fi
exit $status
