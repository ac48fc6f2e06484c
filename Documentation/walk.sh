#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The guest's part of the walk in overview.md: one dispatch, watched from the kernel's side. That
# page has the command that runs it.
#   - a kprobe prints each ioctl of kfdctl with its argument block, as it goes in;
#   - a kprobe prints each entry of the interrupt ring that amdgpu passes on to its KFD;
#   - strace holds the program after CREATE_QUEUE, its 19th ioctl, until the new queue has been
#     looked at.
set -e
create_queue=19
tracing=/sys/kernel/tracing
debug=/sys/kernel/debug/amdkfd

# Of x86's struct pt_regs: si is at 0x68, dx at 0x60.
block=
for at in 0 8 16 24 32 40 48 56 64 72 80; do block="$block a$at=+u$at(+0x60(%di)):x64"; done
echo "p:ioctl __x64_sys_ioctl cmd=+0x68(%di):x32$block" >$tracing/kprobe_events
words=
for word in 0 1 2 3 4 5 6 7; do words="$words w$word=+$((word * 4))(%si):x32"; done
echo "p:interrupt amdgpu:amdgpu_amdkfd_interrupt$words" >>$tracing/kprobe_events
echo 'comm == "kfdctl"' >$tracing/events/kprobes/ioctl/filter
echo 'comm == "kfdctl" && COMM != "strace"' >$tracing/events/sched/sched_waking/filter
for event in kprobes/ioctl kprobes/interrupt sched/sched_waking; do
    echo 1 >$tracing/events/$event/enable
done

strace -o /tmp/walk.strace -e trace=ioctl,mmap -P /dev/kfd -P /dev/dri/renderD128 \
    -e inject=ioctl:delay_exit=2000000:when=$create_queue build/guest/kfdctl run vadd -n 65536 &
for turn in $(seq 100); do
    if grep -q '^queues 1' $debug/counts; then break; fi
    sleep 0.1
done
for file in counts rls mqds; do
    echo "== $file"
    cat $debug/$file
done
wait
echo "== system calls"
cat /tmp/walk.strace
echo "== trace"
grep -v '^#' $tracing/trace
