# SPDX-License-Identifier: GPL-2.0-only
# What prepare and build know of a kernel of Debian's. Sourced; `kernel` is its release, as uname
# -r says it. TREES: where the prepared sources are kept.

cache=${TREES:-/var/cache/amdkfd-rs}/$kernel
tree=$cache/tree
headers=/lib/modules/$kernel/build
compiler=/usr/bin/rustc

# What DKMS takes as "this kernel is not for this module": it goes on with the others.
skipped() {
    printf 'amdkfd-rs: not built for %s: %s\n' "$kernel" "$*" >&2
    exit 77
}
die() { printf 'amdkfd-rs: %s\n' "$*" >&2; exit 1; }

# option NAME: its value in the kernel's configuration, without quotes.
option() { sed -n "s/^$1=//p" "$headers/.config" | tr -d '"'; }

# The C compiler that it was built with, by name.
c_compiler() { option CONFIG_CC_VERSION_TEXT | sed 's/ .*//'; }

# version_of PACKAGE: of an installed one, or nothing.
version_of() {
    local state version
    read -r state version < <(
        dpkg-query -W -f '${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null
    ) || return 0
    # Unpacked serves as well as configured: this may run while apt is at work.
    case $state in ?[iUFWt]) echo "$version" ;; esac
}

# owner_of FILE: the package whose file it is, under whichever name of a merged /usr.
owner_of() {
    { dpkg-query -S "$1" || dpkg-query -S "/usr$1"; } 2>/dev/null | sed -n 's/: .*//p' | head -n 1
}

# amdgpu_file: the distribution's amdgpu, not one from updates/: its structures are those of
# linux-source.
amdgpu_file() {
    local base=/lib/modules/$kernel/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko suffix
    for suffix in '' .xz .zst .gz; do
        if [ -e "$base$suffix" ]; then echo "$base$suffix"; return; fi
    done
}
