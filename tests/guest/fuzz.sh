# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=sh
# fuzz SECONDS SEED [OPTION...]: generated programs, and such as unmodified ROCm programs make: what
# it did, as figures, or the program that failed.

# model NAME CMD...: the calls of CMD as a program for the fuzzer.
model() {
    name=$1; shift
    kfdctl --json trace -o "/tmp/$name.json" -- "$@" >/dev/null 2>&1
    check "a program of what $name calls" \
        sh -c "kfd-tests fuzz from-trace /tmp/$name.json >/tmp/$name.fuzz"
    calls=$(grep -c . "/tmp/$name.fuzz")
    [ "$calls" -ge 20 ] || not_ok "$name: a program of $calls calls"
}

# FUZZ_CORPUS: the directory of a corpus, for a module with coverage.
fuzz() {
    seconds=$1 seed=$2; shift 2
    model rocminfo rocminfo
    model hip_vadd hip_vadd 1000
    echo "figure: FUZZ_SEED=$seed"
    # Many small programs tell more of what a line reaches than a few large ones.
    [ -z "${FUZZ_CORPUS:-}" ] || set -- --corpus "$FUZZ_CORPUS" --processes 4 --lines 120 "$@"
    if kfd-tests fuzz run --seconds "$seconds" --seed "$seed" --floors --from /tmp/rocminfo.fuzz \
        --from /tmp/hip_vadd.fuzz "$@" >/tmp/fuzz 2>&1; then
        sed 's/^/figure: /' /tmp/fuzz
        ok "$(grep ' programs of ' /tmp/fuzz)"
    else
        sed 's/^/figure: /' /tmp/fuzz
        not_ok "fuzz, FUZZ_SEED=$seed: $(tail -n 1 /tmp/fuzz)"
        [ ! -e /tmp/failed.fuzz ] || sed 's/^/program: /' /tmp/failed.fuzz
    fi
}
