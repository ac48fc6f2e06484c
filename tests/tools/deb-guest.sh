#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What tests/tools/deb.test runs in a guest whose root has the packages installed.
. "$(dirname "$0")/lib.sh"

# The guest's modules come from a disk of their own; below it are the root's, with what DKMS has
# built.
check "the root has modules of its own" umount /usr/lib/modules
depmod
equal "kfdctl is the package's" "$(command -v kfdctl)" /usr/bin/kfdctl
equal "the module is DKMS's" "$(modinfo -n amdkfd)" \
    "/lib/modules/$(uname -r)/updates/dkms/amdkfd.ko.xz"
refused "it is signed" '^$' test -z "$(modinfo -F signer amdkfd)"
served_by c
check "HIP on the C driver" hip_vadd 1000
check "kfdctl driver use rust" kfdctl driver use rust
served_by rust
check "HIP on ours" hip_vadd 1000
check "kfdctl driver use c" kfdctl driver use c
served_by c
check "HIP on the C driver again" hip_vadd 1000

wants=/etc/systemd/system/dev-kfd.device.wants/amdkfd-rs.service
unit=/usr/lib/systemd/system/amdkfd-rs.service
check "systemd takes the unit" systemd-analyze verify --man=no $unit
check "kfdctl driver at-boot rust" kfdctl driver at-boot rust
check "which enables the unit" test -e $wants
check "what the unit starts" sh -c "$(sed -n 's/^ExecStart=-//p' $unit)"
served_by rust
check "HIP on ours at boot" hip_vadd 1000
check "kfdctl driver use c" kfdctl driver use c
check "kfdctl driver at-boot c" kfdctl driver at-boot c
refused "which disables it" '' test -e $wants
served_by c
clean_dmesg
exit $failed
