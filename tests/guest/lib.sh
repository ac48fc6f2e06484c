# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What the guest's test scripts share. A test prints "ok - WHAT" or "not ok - WHAT: WHY" and goes
# on.

share=$(cd "$(dirname "$0")/.." && pwd)
module=/run/amdkfd/amdkfd.ko
# In memory: each page of a program comes through the share anew for each process.
mkdir -p /tmp/bin
cp -u "$share/kfdctl" "$share/kfd-tests" /tmp/bin
export PATH="/tmp/bin:$share:$PATH" TMPDIR=/tmp
failed=0

ok() { echo "ok - $*"; }
not_ok() { echo "not ok - $*"; failed=1; }

# tried CMD...: CMD, and what it says in $out. The C driver may wipe the page tables of a fresh
# process (Documentation/uapi.md, "Page tables of a fresh process"), whose queue then faults: as C
# is no more than the stage here, CMD has two more tries there. Each is told, and what amdgpu says
# of the fault is not held against the test.
tried() {
    for attempt in 1 2 3; do
        faults_after=$(dmesg --raw | wc -l)
        out=$("$@" 2>&1) && return 0
        [ "$(state)" != serving ] && dmesg --raw | tail -n +"$((faults_after + 1))" |
            grep -E "$of_a_fault" >/tmp/fault || return 1
        cat /tmp/fault >>/tmp/dmesg.faults
        echo "figure: try $attempt of '$*' on the C driver met a page fault" >&2
    done
    return 1
}
of_a_fault='retry page fault|  Process .* pid [0-9]|in page starting at|  cookie node_id|'\
'Faulty UTCL2|VM_L2_PROTECTION_FAULT_STATUS|'\
'(MORE_FAULTS|WALKER_ERROR|PERMISSION_FAULTS|MAPPING_ERROR| RW):'

# check WHAT CMD...: CMD succeeds.
check() {
    what=$1; shift
    if tried "$@"; then
        ok "$what"
    else
        not_ok "$what: $(echo "$out" | tail -n 2 | tr '\n' ' ')"
    fi
}

# refused WHAT TEXT CMD...: CMD fails and says TEXT (an extended regular expression).
refused() {
    what=$1 text=$2; shift 2
    if out=$("$@" 2>&1); then not_ok "$what: it succeeded"
    elif echo "$out" | grep -qE "$text"; then ok "$what"
    else not_ok "$what: it said: $out"; fi
}

# unload [MODULE]: rmmod of ours, or of another one, which the last process keeps for a moment after
# its end.
unload() {
    for _ in $(seq 100); do
        if rmmod "${1:-amdkfd}" 2>/tmp/rmmod; then return 0; fi
        grep -qE 'in use|temporarily' /tmp/rmmod || break
        sleep 0.1
    done
    cat /tmp/rmmod
    return 1
}

# load ARGUMENTS...: insmod of ours, which is refused for a moment after the end of whoever had
# /dev/kfd open.
load() {
    for _ in $(seq 600); do
        if insmod $module "$@" 2>/tmp/insmod; then return 0; fi
        grep -qi busy /tmp/insmod || break
        sleep 0.1
    done
    cat /tmp/insmod
    return 1
}

# load_amdgpu ARGUMENTS...: modprobe amdgpu, within seconds (tests/modules/quick_ftrace.c).
load_amdgpu() {
    insmod "$share/quick_ftrace.ko" 2>/dev/null
    modprobe amdgpu "$@"
    set -- $?
    rmmod quick_ftrace 2>/dev/null
    return "$1"
}

# take_over: in a comparison whose head has no module inserted, ours takes /dev/kfd where it is
# ours that runs: whoever is asked then is not C.
take_over() {
    [ -e $module ] || return 0
    insmod $module || return 1
    [ "$(state)" = serving ] || { echo "not ok - ours does not serve: '$(state)'" >&2; return 1; }
}

# equal WHAT A B
equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: '$2' is not '$3'"; fi; }

# What amdkfd.ko says that it does; nothing where it is not loaded.
state() { cat /sys/module/amdkfd/parameters/state 2>/dev/null; }

# becomes PATTERN: the module's state, at most 100 seconds from now.
becomes() {
    for _ in $(seq 500); do
        state | grep -qxE "$1" && return 0
        sleep 0.2
    done
    echo "the state is '$(state)'"
    return 1
}

# served_by c|rust|nobody
served_by() {
    if [ ! -e /dev/kfd ]; then now=nobody
    elif [ "$(state)" = serving ]; then now=rust
    else now=c; fi
    equal "/dev/kfd is served by $1" "$now" "$1"
}

# without_reports: the messages of standard input, on a kernel that checks without what it reports:
# the suite that runs tests there reads that itself (tests/tools/debug-suite.test).
without_reports() {
    case $(uname -r) in
        *-amdkfd-debug | *-amdkfd-kasan) sed '/\[ cut here \]/,/\[ end trace /d' ;;
        *-amdkfd-kcsan) sed -e '/BUG: KCSAN: /,/=====/d' -e '/=====/d' ;;
        *) cat ;;
    esac
}

# The kernel's log with the boot's, which seeds.sh has put aside.
whole_log() {
    cat /run/boot.dmesg 2>/dev/null
    dmesg --raw
}

# The kernel's messages of level warning and above since the last call, but for those that
# dmesg.allow lists: none.
clean_dmesg() {
    bad=$(dmesg --raw 2>/dev/null | tail -n +"$((dmesg_seen + 1))" | without_reports |
        grep -E '^<[0-4]>' | grep -vxFf /tmp/dmesg.faults | grep -vEf /tmp/dmesg.patterns) ||
        [ $? = 1 ] || bad=${bad:-grep cannot read dmesg.patterns}
    dmesg_seen=$(dmesg --raw | wc -l)
    if [ -z "$bad" ]; then
        ok "nothing in dmesg${1:+ $1}"
    else
        not_ok "dmesg${1:+ $1}: $(echo "$bad" | head -n 3 | tr '\n' ' ')"
    fi
}
cat "$share/tests/dmesg.allow" ${HOSTILE:+"$share/tests/hostile.allow"} |
    grep -vE '^#|^$' >/tmp/dmesg.patterns
: >/tmp/dmesg.faults
dmesg_seen=$(dmesg --raw | wc -l)

# The topology as text, without what changes with each registration by design: see
# Documentation/attach.md.
topology() {
    cd /sys/devices/virtual/kfd/kfd/topology || return 1
    find . -type f | sort | xargs grep -H '' 2>&1 | sed 's/:/: /' |
        grep -vE 'generation_id|processor_id_low|simd_id_base'
    cd - >/dev/null || return 1
}

# The instruction set of the first GPU, as compilers call it: gfx942.
target() {
    number=$(sed -n 's/^gfx_target_version //p' \
        /sys/class/kfd/kfd/topology/nodes/*/properties | grep -vxm 1 0)
    printf 'gfx%d%x%x\n' $((number / 10000)) $((number / 100 % 100)) $((number % 100))
}

device_file() { stat -c '%t:%T %a' /dev/kfd; }
memory_used() {
    cat /sys/class/drm/card*/device/mem_info_vram_used /sys/class/drm/card*/device/mem_info_gtt_used
}

# used_again USED: so much memory is in use again, within 20 s. Render nodes close behind the end of
# a process, and VRAM is wiped before it is free.
used_again() {
    for _ in $(seq 200); do
        used=$(memory_used)
        [ "$used" = "$1" ] && return 0
        sleep 0.1
    done
    echo "in use:" $used "instead of" $1
    return 1
}

# no_errors: the kernel's messages of level error and above, but for those that dmesg.allow lists
# and one that the C driver has for each program of the AQL runtime: none. For tests on a loaded
# host, where the kernel warns of its clock.
no_errors() {
    bad=$(dmesg --raw | without_reports | grep -E '^<[0-3]>' | grep -vxFf /tmp/dmesg.faults |
        grep -v 'Free signal BO is not allowed' | grep -vEf /tmp/dmesg.patterns) ||
        [ $? = 1 ] || bad=${bad:-grep cannot read dmesg.patterns}
    if [ -z "$bad" ]; then
        ok "no error in dmesg"
    else
        not_ok "dmesg: $(echo "$bad" | head -n 3 | tr '\n' ' ')"
    fi
}
