# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Debian roots made from lists of packages. Sourced by sysroot.

packages() { sed -e 's/#.*//' -e '/^\s*$/d' "$here/$1.packages"; }
key() { cat "$@" | sha256sum | cut -c1-12; }
# What a hook does belongs to the root.
list_key() {
    local hook
    { packages "$1"
        for hook in $(packages "$1" | sed -n 's/^hook //p'); do cat "$here/$hook"; done
    } | sha256sum | cut -c1-12
}

build_root="$cache/roots/build-$(list_key build)"
hip_root() { echo "$cache/roots/hip-$1-$(list_key "hip-$1")"; }
llvm_root="$cache/roots/llvm-$(list_key llvm)"
deb_root="$cache/roots/deb-guest-$(list_key deb-guest)"
box_root="$cache/roots/box-$(list_key box)"
package_root() { echo "$cache/roots/package-$1-$2"; }
guest_image() { echo "$cache/roots/guest-$1-$(list_key "guest-$1").img"; }

# bootstrap LIST SUITE TARGET: a Debian root with the packages of LIST in TARGET.part. A line
# "unpack NAME" takes a package's files and not its dependencies: for one whose dependencies are
# gone. "prefer NAME..." takes these packages from experimental, "exclude GLOB" leaves files out,
# "hook NAME" runs a Python program, which lies here, in the root.
bootstrap() {
    local list=$1 suite=$2 target=$3 release name
    local lines options extra=() include
    release=$suite
    [ "$suite" != experimental ] || release=sid
    while read -r name; do
        extra+=(--customize-hook="cd \"\$1/tmp\" &&
            APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get download $name &&
            dpkg-deb -x ./*.deb .. && rm ./*.deb")
    done < <(packages "$list" | sed -n 's/^unpack //p')
    while read -r name; do
        extra+=(--setup-hook="printf '%s\n' 'Package: $name' 'Pin: release a=experimental' \
            'Pin-Priority: 990' '' >>\"\$1/etc/apt/preferences.d/experimental\"")
    done < <(packages "$list" | sed -n 's/^prefer //p')
    while read -r name; do extra+=(--dpkgopt="path-exclude=$name")
    done < <(packages "$list" | sed -n 's/^exclude //p')
    local quoted="'\\''"
    while read -r name; do
        # mmdebstrap has sh run it, which does not know all that %q writes.
        extra+=(--customize-hook="chroot \"\$1\" python3 - <'${here//\'/$quoted}/$name'")
    done < <(packages "$list" | sed -n 's/^hook //p')
    mapfile -t lines < <(sources "$suite")
    include=$(packages "$list" | grep -vE '^(unpack|prefer|exclude|hook) ' | paste -sd,)
    options=(--quiet --variant=minbase --components=main --include="$include" "${extra[@]}"
        --aptopt="$(check_valid_until | sed 's/=\(.*\)/ "\1"/')"
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"'
        --dpkgopt=force-unsafe-io
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg)
    mkdir -p "$cache/roots"
    remove_tree "$target.part"
    say "making $(basename "$target") from $(mirror) (a minute or two)"
    bootstrap_into "$target.part" "$release" >"$target.log" 2>&1 || {
        tail -n 15 "$target.log" >&2
        die "mmdebstrap failed; see $target.log; MIRROR=URL takes another mirror than $(mirror)"
    }
}

# bootstrap_into DIR RELEASE: an ordinary user gets the root as an archive from a user namespace and
# owns what is unpacked; whoever enters the root is root in there, and so is the owner of its files.
bootstrap_into() {
    if is_root; then
        mmdebstrap --mode=root "${options[@]}" "$2" "$1" "${lines[@]}"
    else
        mkdir -p "$1"
        mmdebstrap --mode=unshare --format=tar "${options[@]}" "$2" - "${lines[@]}" |
            tar -C "$1" -x --no-same-owner --exclude='./dev/*'
    fi
}

# remove_tree DIR: also where an ordinary user's directories are not writable.
remove_tree() {
    [ -e "$1" ] || return 0
    is_root || chmod -R u+w "$1"
    rm -rf --one-file-system "$1"
}

# finish_root TARGET: what was made in TARGET.part takes its place.
finish_root() {
    touch "$1.part/.complete"
    remove_tree "$1"
    mv "$1.part" "$1"
}

# disk_image DIR IMAGE SLACK-KIB: a file system with DIR's files, owned by root.
disk_image() {
    local kib size owned=()
    kib=$(du -sk "$1" | cut -f1) size=$((kib * 5 / 4 + $3))
    is_root || owned=(unshare --user --map-root-user)
    rm -f "$2"
    "${owned[@]}" mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$1" "$2" ${size}k
}

make_build_root() {
    [ -e "$build_root/.complete" ] && return
    deps
    need_room 15 "everything for the demo and the tests"
    bootstrap build $suite "$build_root"
    finish_root "$build_root"
}

# guest_suite ROOT: most of the guest's roots are called by their suite.
guest_suite() { [ "$1" = libraries ] && echo experimental || echo "$1"; }

make_guest_root() {
    local image target room=3
    image=$(guest_image "$1")
    [ -e "$image" ] && return
    [ -e "$here/guest-$1.packages" ] || die "no guest root '$1' (there is no guest-$1.packages)"
    deps
    [ "$1" != libraries ] || room=7
    need_room $room "the guest's root"
    target=${image%.img}
    bootstrap "guest-$1" "$(guest_suite "$1")" "$target"
    mkdir -p "$target.part"/{mnt/share,lib/modules,lib/firmware}
    say "writing $(basename "$image")"
    disk_image "$target.part" "$image.part" 65536
    remove_tree "$target.part"
    mv "$image.part" "$image"
}

make_hip_root() {
    local root
    root=$(hip_root "$1")
    [ -e "$root/.complete" ] && return
    [ -e "$here/hip-$1.packages" ] || die "no hipcc of '$1' (there is no hip-$1.packages)"
    deps
    need_room 4 "hipcc of $1"
    bootstrap "hip-$1" "$1" "$root"
    finish_root "$root"
}

make_llvm_root() {
    [ -e "$llvm_root/.complete" ] && return
    deps
    need_room 2 "the newer LLVM"
    bootstrap llvm $suite "$llvm_root"
    finish_root "$llvm_root"
}

make_deb_root() {
    [ -e "$deb_root/.complete" ] && return
    deps
    need_room 3 "the root for Debian packages"
    bootstrap deb-guest $suite "$deb_root"
    finish_root "$deb_root"
}

make_box_root() {
    [ -e "$box_root/.complete" ] && return
    deps
    need_room 2 "the container's root"
    bootstrap box $suite "$box_root"
    # Where what is ours lies, and what the guest shares.
    mkdir -p "$box_root.part"/{opt/amdkfd-rs,mnt/share}
    rm -rf "$box_root.part"/var/lib/apt/lists/* "$box_root.part"/var/cache/apt/*.bin
    finish_root "$box_root"
}

# One that is there is used without a look at the lock.
make_llvm_root_locked() {
    [ -e "$llvm_root/.complete" ] || locked llvm-root make_llvm_root
}

# make_package SUITE NAME: the files of one package, for a guest whose root has what it depends on.
make_package() {
    local root
    root=$(package_root "$1" "$2")
    [ ! -e "$root/.complete" ] || return 0
    make_build_root_locked
    remove_tree "$root.part"
    mkdir -p "$root.part"
    # All packages of a suite are fetched with one state, which apt does not wait for.
    { locked "apt-$1" fetch_package "$1" "$2" "$root.part" &&
        in_build_root dpkg-deb -x "$root.part"/*.deb "$root.part"; } >"$root.log" 2>&1 || {
        tail -n 5 "$root.log" >&2
        die "could not download $2 of $1; see $root.log"
    }
    rm "$root.part"/*.deb
    finish_root "$root"
}

# fetch_package SUITE NAME DIR: its .deb. The caller looks at the status, so bash does not end at a
# step that fails in here.
fetch_package() {
    local state=$cache/apt/$1
    mkdir -p "$state" && sources "$1" >"$state/sources.list" &&
        apt_in "$state" apt-get update --error-on=any &&
        cd "$3" && apt_in "$state" apt-get download "$2"
}

make_build_root_locked() {
    [ -e "$build_root/.complete" ] || locked build-root make_build_root
}
