#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# c_formats.sh SEED ENTRIES: what the C amdkfd writes and reads for each generation, packed, on
# standard output. No GPU is needed. tests/tools/generations.test compares it.
modprobe amdgpu || exit 1
insmod /mnt/share/c_formats.ko "seed=$1" "entries=$2" || { dmesg | tail -n 5 >&2; exit 1; }
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
cat /sys/kernel/debug/c_formats | gzip -1 | base64 -w 0
rmmod c_formats
