# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The distribution's kernels: which ones the suite has, which one is used, and what is made of it.
# Sourced by sysroot. A kernel is named by its release (uname -r); nothing here knows a version.
#
#   kernels/catalogue       what the suite has: RELEASE PACKAGE-VERSION SOURCE-PACKAGE MISSING
#   kernels/choice-WANTED   the release that WANTED (newest, or KERNEL) stands for, for a day
#   kernels/RELEASE         one kernel: image, modules, configuration, source, prepared tree

kernels="$cache/kernels"
wanted=${KERNEL:-newest}
flavour=amd64
# TIMEOUT: a suite gets a new kernel every week or two; a day is soon enough to see it.
renew_after_minutes=1440

# apt_kernels CMD...: apt in the build root, with the suite's kernels and nothing else.
apt_kernels() { apt_in "$cache/apt" "$@"; }

# apt_in STATE CMD...: with the sources, lists and downloads of that directory.
apt_in() {
    local state=$1; shift
    mkdir -p "$state"/{lists/partial,archives/partial}
    in_build_root "$1" -q -o APT::Sandbox::User=root -o "$(check_valid_until)" \
        -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state" \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "${@:2}"
}

# write_catalogue: asks the mirror. Fails when it does not answer. Callers look at the status, so
# bash does not end at a step that fails in here.
write_catalogue() { locked catalogue fetch_catalogue; }
fetch_catalogue() {
    local file
    mkdir -p "$cache/apt" "$kernels"
    echo "deb ${MIRROR_OPTIONS:-} $(mirror) $suite-backports main" >"$cache/apt/sources.list"
    apt_kernels apt-get update --error-on=any >"$cache/apt/update.log" 2>&1 || return 1
    apt_kernels apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages' |
        while read -r file; do in_build_root /usr/lib/apt/apt-helper cat-file "$file"; done |
        catalogue_of | sort -rV >"$kernels/catalogue.part" || return 1
    mv "$kernels/catalogue.part" "$kernels/catalogue"
}

# catalogue_of: from an index. A kernel is whole when its image, modules, base files, headers and
# source are all there in one and the same package version; otherwise the last field names what is
# missing.
catalogue_of() {
    awk -v flavour="$flavour" '
        /^Package: / { name = $2 }
        /^Version: / { have[name, $2] = 1; note(name, $2) }
        function note(name, version) {
            if (match(name, "^linux-binary-[0-9][^-]*-" flavour "$"))
                image[substr(name, 14), version] = 1
        }
        END {
            for (pair in image) {
                split(pair, part, SUBSEP)
                release = part[1]; version = part[2]; missing = ""
                split(release, number, ".")
                split(number[2], minor, /[^0-9]/)
                source = "linux-source-" number[1] "." minor[1]
                if (!((source, version) in have)) missing = missing ",source"
                if (!(("linux-modules-" release, version) in have)) missing = missing ",modules"
                if (!(("linux-base-" release, version) in have)) missing = missing ",base"
                if (!(("linux-headers-" release, version) in have)) missing = missing ",headers"
                print release, version, source, missing == "" ? "-" : substr(missing, 2)
            }
        }'
}

# matches RELEASE WANTED: "newest", a series such as 1.2, a version such as 1.2.3, or a release.
matches() {
    case $2 in
        newest) return 0 ;;
        *) [[ "$1" == "$2" || "$1" == "$2".* || "$1" == "$2"+* ]] ;;
    esac
}

# releases_matching WANTED FILE: of lines that begin with a release, newest first.
releases_matching() {
    local release
    while read -r release; do
        ! matches "$release" "$1" || echo "$release"
    done < <(cut -d' ' -f1 "$2")
}

in_catalogue() { grep -qs "^${1//+/\\+} .* -\$" -E "$kernels/catalogue"; }
whole_releases() { releases_matching "$1" <(grep ' -$' "$kernels/catalogue"); }
cached_releases() {
    local dir
    releases_matching "$1" <(for dir in "$kernels"/[0-9]*/.complete; do
        [ ! -e "$dir" ] || basename "$(dirname "$dir")"
    done | sort -rV)
}

is_fresh() { [ -n "$(find "$1" -mmin -$renew_after_minutes 2>/dev/null)" ]; }
choice_file() { echo "$kernels/choice-$1"; }

# kernel_release: the chosen kernel, after `ensure_choice`. What was chosen stays so until
# `renew_choice`.
kernel_release() {
    local file
    file=$(choice_file "$wanted")
    [ -s "$file" ] || die "no kernel $wanted is chosen yet"
    cat "$file"
}

# ensure_choice: not from within $(...), where bash goes on after a step that failed.
ensure_choice() { [ -s "$(choice_file "$wanted")" ] || locked choice choose_kernel >&2; }

# choose_kernel: the newest that matches, is whole and was built with the root's toolchain. Where
# the mirror does not answer or has none, one in the cache serves.
choose_kernel() {
    local release candidates
    make_build_root_locked
    if ! write_catalogue; then
        say "the mirror does not answer ($cache/apt/update.log): using the kernels in the cache"
        candidates=$(cached_releases "$wanted")
        [ -n "$candidates" ] || die "no kernel $wanted in the cache, and no mirror to fetch it from"
    else
        candidates=$(whole_releases "$wanted")
        if [ -z "$candidates" ]; then
            candidates=$(cached_releases "$wanted")
            [ -n "$candidates" ] || die "$(mirror) has no whole kernel $wanted; it has:" \
                "$(whole_releases newest | paste -sd' ')"
            say "$(mirror) has no kernel $wanted any more: using the one in the cache"
        fi
    fi
    for release in $candidates; do
        fetch_kernel "$release"
        suits_toolchain "$release" || continue
        record_choice "$release"
        return
    done
    die "the toolchain of the build root fits no kernel $wanted"
}

record_choice() {
    local file before
    file=$(choice_file "$wanted") before=$(cat "$file" 2>/dev/null || true)
    [ -z "$before" ] || [ "$before" = "$1" ] || say "kernel $wanted is $1 now (it was $before)"
    echo "$1" >"$file.part"
    mv "$file.part" "$file"
}

# renew_choice: looks once a day whether the suite has moved on.
renew_choice() {
    is_fresh "$(choice_file "$wanted")" || locked choice choose_kernel >&2
}

# suits_toolchain RELEASE: a module's Rust must be compiled by what compiled the kernel's.
suits_toolchain() {
    local config="$kernels/$1/config" built have
    grep -q '^CONFIG_RUST=y' "$config" || { say "passing over $1: built without Rust"; return 1; }
    built=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(rustc [0-9.]*\).*/\1/p' "$config")
    have=$(in_build_root rustc --version | sed 's/\(rustc [0-9.]*\).*/\1/')
    [ "$built" = "$have" ] || {
        say "passing over $1: built by $built, the root has $have"
        return 1
    }
}

kernel_dir() { local release; release=$(kernel_release); echo "$kernels/$release"; }
kernel_version() { local release; release=$(kernel_release); echo "${release%%+*}"; }

# other_series: of another series than the chosen kernel's, the newest that is whole or in the
# cache; nothing where there is none.
other_series() {
    local series release
    release=$(kernel_release)
    series=$(series_of "$release")
    [ -s "$kernels/catalogue" ] || write_catalogue || true
    while read -r release; do
        [ "$(series_of "$release")" = "$series" ] || { series_of "$release"; return; }
    done < <({ whole_releases newest 2>/dev/null; cached_releases newest; } | sort -rVu)
}
series_of() { sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$1"; }

# build_dir: where modules for the chosen kernel are built. The newest's are the checkout's own.
build_dir() {
    local release
    release=$(kernel_release)
    if [ "$wanted" = newest ] || [ "$release" = "$(cat "$(choice_file newest)" 2>/dev/null)" ]; then
        echo "$project"
    else
        echo "$project/build/kernel-${release%%+*}"
    fi
}

# print_kernels: what the suite and the cache have.
print_kernels() {
    local release version source missing
    make_build_root_locked
    write_catalogue || say "the mirror does not answer: this is what it had"
    while read -r release version source missing; do
        [ "$missing" = - ] && missing='whole' || missing="without its ${missing//,/, }"
        printf '%-28s %-20s %s%s\n' "$release" "$version" "$missing" \
            "$([ ! -e "$kernels/$release/.complete" ] || echo ', in the cache')"
    done <"$kernels/catalogue"
    for release in $(cached_releases newest); do
        in_catalogue "$release" || printf '%-28s %-20s %s\n' "$release" - 'only in the cache'
    done
}

make_kernel() {
    local release
    release=$(kernel_release)
    fetch_kernel "$release"
}

fetch_kernel() { [ -e "$kernels/$1/.complete" ] || locked "kernel-$1" unpack_kernel "$1"; }

# unpack_kernel RELEASE: the packages' files as they are, modules decompressed (kmod in the guest
# is slow at it), and the source.
unpack_kernel() {
    local release=$1 dir="$kernels/$1" version source deb
    [ -e "$dir/.complete" ] && return
    in_catalogue "$release" || write_catalogue || die "the mirror does not answer"
    in_catalogue "$release" || die "$(mirror) has no whole kernel $release (any more)"
    need_room 4 "kernel $release"
    read -r _ version source _ < <(grep -E "^${release//+/\\+} " "$kernels/catalogue")
    say "fetching the stock kernel $release with modules, headers and source ($version)"
    remove_tree "$dir.part"
    mkdir -p "$dir.part/deb"
    download "$release" "$dir.part/deb" \
        "$source=$version" linux-{binary,modules,base,headers}-"$release=$version"
    for deb in "$dir.part"/deb/*.deb; do dpkg_extract "$deb" "$dir.part/pkg"; done
    place_kernel "$release" "$dir.part"
    rm -rf "$dir.part/pkg" "$dir.part/deb"
    echo "$version" >"$dir.part/version"
    touch "$dir.part/.complete"
    remove_tree "$dir"
    mv "$dir.part" "$dir"
}

# download RELEASE DIR PACKAGE=VERSION...: all or nothing; tells when the suite moved on meanwhile.
download() {
    local release=$1 dir=$2; shift 2
    ( cd "$dir" && apt_kernels apt-get download "$@" ) >"$cache/apt/download.log" 2>&1 && return
    tail -n 5 "$cache/apt/download.log" >&2
    if write_catalogue && ! in_catalogue "$release"; then
        rm -f "$(choice_file "$wanted")"
        die "the suite moved on while this ran: $release is gone, the newest is" \
            "$(whole_releases newest | head -n 1); run the same command again"
    fi
    die "could not download $release (see $cache/apt/download.log); run the same command again"
}

dpkg_extract() { in_build_root dpkg-deb -x "$1" "$2"; }

# place_kernel RELEASE DIR: from DIR/pkg.
place_kernel() {
    local release=$1 dir=$2
    local tree="$dir/modules-root/$release" headers="$dir/pkg/usr/src/linux-headers-$release"
    cp "$dir/pkg/usr/lib/modules/$release"/{vmlinuz,config,System.map} "$dir"
    # "vmlinux" of the headers package is the kernel's BTF, the base of amdgpu's.
    cp "$headers"/{Module.symvers,vmlinux} "$dir"
    mv "$dir"/pkg/usr/src/linux-source-*.tar.xz "$dir/linux-source.tar.xz"
    mkdir -p "$dir/modules-root"
    mv "$dir/pkg/usr/lib/modules/$release" "$tree"
    rm -f "$tree/build" "$tree/source"
    # What the packages hold, so that a test can show that nothing was changed.
    ( cd "$tree" && find . -name amdgpu.ko.xz -exec sh -c \
        'xz -dc "$1" | sha256sum | sed "s#-#amdgpu.ko#"' _ {} \; ) >"$dir/SHA256SUMS"
    ( cd "$dir" && sha256sum vmlinuz >>SHA256SUMS )
    find "$tree" -name '*.ko.xz' -print0 | xargs -0 -P "$(nproc)" -n 64 xz -dq
    run_depmod "$dir/modules-root" "$release"
    disk_image "$dir/modules-root" "$dir/modules.img" 16384
}

# run_depmod MODULES-DIR RELEASE: it wants <base>/lib/modules/<release>.
run_depmod() {
    local base
    base=$(mktemp -d "$cache/depmod.XXXXXX")
    mkdir -p "$base/lib"
    mv "$1" "$base/lib/modules"
    SYSROOT_BIND='' in_build_root depmod -b "$base" "$2"
    mv "$base/lib/modules" "$1"
    rm -r "$base"
}

# source_into DIR: the kernel's source, unpacked.
source_into() {
    mkdir -p "$1"
    tar -C "$1" --strip-components=1 --no-same-owner -xJf "$(kernel_dir)/linux-source.tar.xz"
}

make_kernel_tree() {
    local dir tree release
    make_kernel
    release=$(kernel_release) dir=$(kernel_dir)
    tree=$dir/tree
    [ -e "$tree/.complete" ] && return
    say "preparing the source of $release for Rust modules (about 90 s)"
    remove_tree "$tree"
    source_into "$tree"
    cp "$dir/config" "$tree/.config"
    cp "$dir/Module.symvers" "$tree/Module.symvers"
    in_bare_build_root make -C "$tree" -j"$(nproc)" LOCALVERSION="+${release#*+}" olddefconfig \
        modules_prepare >"$tree.log" 2>&1 ||
        { tail -n 20 "$tree.log" >&2; die "modules_prepare failed; see $tree.log"; }
    cp "$dir/Module.symvers" "$tree/Module.symvers"
    grep -qF "\"$release\"" "$tree/include/generated/utsrelease.h" ||
        die "the prepared tree is $(cat "$tree/include/generated/utsrelease.h"), not $release"
    touch "$tree/.complete"
}

make_kernel_tree_locked() { locked kernel-tree make_kernel_tree; }
