# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What has passed with the same sources, which tests/run does not run once more. It uses that
# script's functions and variables, and the caches of the guests' kernel.

# tree_state: of the sources as they are here, but for the records of long tests.
tree_state() {
    local of=(. ':(exclude)Documentation/results')
    git ls-files --stage -- "${of[@]}" && git diff -- "${of[@]}" || return 1
    git ls-files -z --others --exclude-standard -- "${of[@]}" | xargs -0r sha1sum
}

# on_machine: of what is used of the machine, of what chooses what is built and run, and of what was
# built before this script began.
on_machine() {
    local of
    of=$(sed -n 's/^BUILD_ROOT=//p' <<<"$env")
    stat -L -c '%n %s %Y' "$of"/usr/bin/{rustc,qemu-system-x86_64} 2>/dev/null
    cargo --version 2>/dev/null
    sed -n 's/^KERNEL_RELEASE=//p' <<<"$env"
    env | grep -E '^(CARGO|FUZZ|HOSTILE|KFD_(VM_ACCEL|ALSO|MODULE)|RUST)' | LC_ALL=C sort
    find build/debug/amdkfd.ko "$share" -maxdepth 1 -type f -print0 2>/dev/null | sort -z |
        xargs -0r sha1sum
    stat -L -c '%n %s %Y' {tools,userspace}/target/debug/{kfd-vm,gpu-model-server,kfdctl} \
        2>/dev/null
    return 0
}

# job_state NAME: the state of all that the job's result depends on; fails if a part of it is not
# there.
job_state() {
    local base script=tests/${1%@*}.test traced options limit counted silence
    base=$(basename "$script" .test)
    echo "$1 $gpu $root $series ${FUZZ_SEED:-}"
    case $1 in
        guest/* | compare/*)
            options=$(vm_options "$script") limit='' counted='' silence=''
            traced=$(head_of "$script" traced)
            oracle_state || return 1
            digest "$share/amdkfd.ko" || return 1
            sha1sum tests/run tests/lib/* || return 1
            cat "tests/compare/$base.explained" 2>/dev/null
            variables "$script"
            ;;
        *) on_machine && tree_state ;;
    esac
}

# result_key NAME: none where results are not kept: where a test is asked for by name, or KEPT=0, or
# the C driver has to run.
result_key() {
    local state
    [ "${KEPT:-1}" = 1 ] && [ "${ORACLE_CACHE:-1}" = 1 ] && [[ " ${wanted[*]} " != */* ]] || return
    state=$(job_state "$1") && [ -n "$state" ] || return
    sha1sum <<<"$state" | cut -c 1-16
}

# had_passed NAME KEY: whether it has, with this key; counts it.
had_passed() {
    local file=$cache/passed/${1//\//-}-$2 had
    [ -n "$2" ] && read -ra had 2>/dev/null <"$file" || return
    touch "$file"
    result "${had[0]}" 0 "$1" "${had[2]}" "as before"
    scripts=${had[1]} kept=1
}

# keep_passed NAME KEY: what run_job has counted, unless something failed, or is another one by now.
keep_passed() {
    [ -n "$2" ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ] || return 0
    [ "$(result_key "$1")" = "$2" ] || return 0
    mkdir -p "$cache/passed" && echo "$passed $scripts $compared" >"$cache/passed/${1//\//-}-$2"
}

# forget_passed: those that no run has used for 30 days.
forget_passed() {
    [ ! -d "$cache/passed" ] || find "$cache/passed" -type f -mtime +30 -delete
}
