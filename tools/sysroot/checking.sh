# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The kernels that check: the chosen kernel's source, each with its own configuration; named by
# both. Sourced by sysroot.

debug_dir() { echo "$kernels/debug-$(kernel_version)-$(key "$here/debug.config")"; }
kasan_dir() { echo "$kernels/kasan-$(kernel_version)-$(over_debug kasan | key)"; }
kcsan_dir() { echo "$kernels/kcsan-$(kernel_version)-$(over_debug kcsan | key)"; }

# over_debug NAME: the options of NAME.config over the hardware of debug.config. One that both
# name is NAME.config's.
over_debug() {
    awk '
        function option() {
            return match($0, /CONFIG_[A-Z0-9_]+/) ? substr($0, RSTART, RLENGTH) : ""
        }
        FNR == NR { own[option()]; lines[++count] = $0; next }
        /^# What the kernel checks/ { exit }
        option() == "" || !(option() in own)
        END { for (line = 1; line <= count; line++) print lines[line] }' \
        "$here/$1.config" "$here/debug.config" |
        grep -E '^CONFIG_|^# CONFIG_[A-Z0-9_]+ is not set$|^# Not in every kernel'
}

make_debug_kernel() {
    checking_kernel "$(debug_dir)" "KUnit, lockdep, kmemleak, debugobjects; 10 to 20 minutes" \
        "$here/debug.config"
}

make_kasan_kernel() {
    checking_kernel "$(kasan_dir)" "KUnit, KASAN, kmemleak, fault injection; 20 to 40 minutes" \
        <(over_debug kasan) LLVM=1
}

make_kcsan_kernel() {
    checking_kernel "$(kcsan_dir)" "KUnit, KCSAN, kmemleak; 20 to 40 minutes" \
        <(over_debug kcsan) LLVM=1
}

# checking_kernel DIR WHAT CONFIG MAKE-ARGUMENTS...
checking_kernel() {
    local dir=$1 what=$2 config=$3 tree=$1/tree release; shift 3
    [ -e "$dir/.complete" ] && return
    make_kernel
    need_room 8 "a checking kernel"
    say "building the kernel with $what"
    [ -e "$tree/.unpacked" ] || {
        remove_tree "$tree"
        source_into "$tree"
        touch "$tree/.unpacked"
    }
    local make=(in_bare_build_root nice -n "${SYSROOT_NICE:-0}" make -C "$tree" -j"$(nproc)" "$@")
    cat "$config" >"$tree/debug.config"
    # Interrupted builds go on where they stopped: the tree stays.
    { "${make[@]}" KCONFIG_ALLCONFIG=debug.config allnoconfig && check_debug_config "$tree" &&
        "${make[@]}" bzImage modules; } >"$dir/build.log" 2>&1 ||
        { tail -n 20 "$dir/build.log" >&2; die "the kernel did not build; see $dir/build.log"; }
    release=$(cat "$tree/include/config/kernel.release")
    cp "$tree/arch/x86/boot/bzImage" "$dir/vmlinuz"
    rm -rf "$dir/install"
    in_bare_build_root make -C "$tree" "$@" INSTALL_MOD_PATH="$dir/install" INSTALL_MOD_STRIP=1 \
        modules_install >>"$dir/build.log" 2>&1
    rm -f "$dir/install/lib/modules/$release"/{build,source}
    disk_image "$dir/install/lib/modules" "$dir/modules.img" 16384
    echo "$release" >"$dir/release"
    touch "$dir/.complete"
}

# may_be_unknown TREE OPTION: the configuration says that not every kernel has it, and this one
# has not.
may_be_unknown() {
    grep -qx "# Not in every kernel: $2" "$1/debug.config" &&
        ! grep -rqxF "config ${2#CONFIG_}" --include='Kconfig*' "$1"
}

# An option that the configuration asks for, or wants off, and Kconfig did otherwise would weaken
# every test in silence.
check_debug_config() {
    local line option missing=0
    while read -r line; do
        case "$line" in
            CONFIG_*=*)
                grep -qxF "$line" "$1/.config" || may_be_unknown "$1" "${line%%=*}" ||
                    { echo "not taken: $line"; missing=1; } ;;
            "# CONFIG_"*" is not set")
                option=${line#\# } option=${option%% *}
                ! grep -q "^$option=" "$1/.config" || { echo "not off: $option"; missing=1; } ;;
        esac
    done <"$1/debug.config"
    return $missing
}
