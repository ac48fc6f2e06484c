# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What kfdctl shows of waves and of a debugger's calls, on whatever driver serves: sourced after
# lib.sh and children.sh.

# says WHAT TEXT CMD...: CMD succeeds and prints a line that matches TEXT.
says() {
    what=$1 text=$2; shift 2
    if out=$("$@" 2>&1) && echo "$out" | grep -qE "$text"; then ok "$what"
    else not_ok "$what: $(echo "$out" | tail -n 3 | tr '\n' ' ')"; fi
}

# waves_of_a_program DRIVER: its kernel runs until it is told to end; meanwhile it is looked at. Not
# on C in hostile mode: a look brings the save area home, which is shared virtual memory, and C then
# flushes no translations of it (uapi.md).
waves_of_a_program() {
    [ "$1${HOSTILE:-}" != C1 ] || return
    # Waves of an MI200 do not keep their work-group's id unless ROCr asks for it.
    begun "grep -q running /tmp/said" /tmp/said env HSA_ENABLE_DEBUG=1 hip_debugged ||
        not_ok "no waves on $1: $(cat /tmp/said)"
    program=$begun
    says "waves of a program on $1" '^queue [0-9]+ on GPU [0-9]+: 4 waves' kfdctl waves "$program"
    # Where its loop may end it has no lanes for an instruction.
    says "a wave's place and next instruction on $1" \
        '^ +[0-9]+  1,0,0 +1  runs +0x[0-9a-f]{12} +(64|0)  (s_|v_|global_|flat_)' \
        kfdctl waves "$program"
    says "its registers on $1" '^    status 0x[0-9a-f]{8}' kfdctl waves --registers "$program"
    says "waves as JSON on $1" '"group":\[1,0,0\]' kfdctl waves "$program" --json
    # Lane 0 of v40 in each wave: what hip_debugged's kernel has put there. XCCs come one after the
    # other, and the first group need not be the first XCC's.
    equal "a register of each wave on $1" "$(kfdctl waves --vectors "$program" |
        awk '/^    v/ { this = $1 } $1 == "lane" && $2 == 0 && this == "v40" { print $3 }' |
        sort | tr '\n' ' ')" \
        "00000001 000000c1 00000181 00000241 "
    refused "a queue that it has not on $1" 'no compute queue 77' kfdctl waves "$program" -q 77
    echo >&3
    exec 3>&-
    wait "$program"
    equal "the program goes on and is right on $1" "$(tail -n 1 /tmp/said)" \
        "0 of 256 results are not what they should be"
    sleep 100 &
    program=$!
    refused "a program without a runtime on $1" 'has not told the driver of a runtime' \
        kfdctl waves "$program"
    kill "$program"
    wait "$program"
    refused "a program that has ended on $1" 'there is no process' kfdctl waves "$program"
}

# debugger_is_traced DRIVER: a program that debugs itself, under kfdctl trace.
debugger_is_traced() {
    check "a debugger is traced on $1" kfdctl trace -o /tmp/trace -- kfd-tests debug --case itself
    for call in 'op=ENABLE, .*exception_mask=.* = 0 ' 'op=ENABLE, .* = -1 EALREADY' \
        'op=QUERY_DEBUG_EVENT, .*exception_mask=QUEUE_NEW.*= 0 ' \
        'op=GET_QUEUE_SNAPSHOT, .*ring_size'; do
        says "$call on $1" "DBG_TRAP.*$call" cat /tmp/trace
    done
}
