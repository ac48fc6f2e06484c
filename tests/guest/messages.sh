# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# Messages about a GPU name it as the PCI bus does. Sourced by the tests of several GPUs: hangs the
# scheduler of the last one, which warns, fails and is reset, and reads what the driver says.

# A line "GPU_ID PCI_NAME" for each GPU.
names() {
    for node in /sys/class/kfd/kfd/topology/nodes/*; do
        id=$(cat "$node/gpu_id")
        [ "$id" != 0 ] || continue
        domain=$(sed -n 's/^domain //p' "$node/properties")
        location=$(sed -n 's/^location_id //p' "$node/properties")
        printf '%d %04x:%02x:%02x.%x\n' "$id" "$domain" $((location >> 8)) \
            $((location >> 3 & 31)) $((location & 7))
    done
}

names >/tmp/names
while read -r id name; do
    equal "$name is a GPU's" "$(cat "/sys/bus/pci/devices/$name/vendor")" 0x1002
    equal "GPU $id is served as $name" "$(whole_log | grep -c "amdkfd: $name: serves GPU $id ")" 1
done </tmp/names
last=$(tail -n 1 /tmp/names)
id=${last% *} name=${last#* }

seen_before=$(dmesg --raw | wc -l)
check "GPU $id is to hang" sh -c "echo $id >/sys/kernel/debug/amdkfd/hang_hws"
for _ in $(seq 300); do
    dmesg | grep -q 'GPU reset([0-9]*) succeeded' && break
    sleep 0.2
done
equal "one GPU was reset" "$(dmesg | grep -c 'GPU reset([0-9]*) succeeded')" 1
# Warnings and errors alone.
dmesg --raw | tail -n +$((seen_before + 1)) | grep -E '^<[0-4]>.*amdkfd: ' | sed 's/.*amdkfd: //' \
    >/tmp/said
equal "it was asked for, and it hung" \
    "$(grep -cE 'hanging the scheduler|cannot be unmapped' /tmp/said)" 2
equal "all that was said names $name" "$(grep -vc "^$name: " /tmp/said)" 0
check "vadd on GPU $id after its reset" timeout 100 kfdctl run vadd -n 4097 --gpu \
    $(($(wc -l </tmp/names) - 1))
