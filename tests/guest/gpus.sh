# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What a guest with COUNT GPUs shows: each is served, has a name of its own and computes. Sourced by
# the tests of 4 and 8 GPUs.

equal "$COUNT GPUs in the topology" \
    "$(cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id | grep -vxc 0)" "$COUNT"
equal "rocminfo lists them" "$(rocminfo | grep -c 'Name: *gfx942')" "$COUNT"
unique=$(sed -n 's/^unique_id //p' /sys/class/kfd/kfd/topology/nodes/*/properties |
    grep -vx 0 | sort -u | wc -l)
equal "their unique ids differ" "$unique" "$COUNT"
gpu=0
while [ $gpu -lt "$COUNT" ]; do
    check "vadd on GPU $gpu" kfdctl run vadd -n 4097 --gpu $gpu
    gpu=$((gpu + 1))
done
# One process on all of them, through ROCm.
check "HIP on the last GPU" hip_programs -g $((COUNT - 1)) vadd gemm-tiled 65
used=$(awk '/MemTotal/ {t=$2} /MemAvailable/ {a=$2} END {print int((t - a) / 1024)}' /proc/meminfo)
uptime=$(cut -d' ' -f1 /proc/uptime)
echo "figure: $COUNT GPUs: $used MiB of the guest in use, $uptime s up"
