# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The fuzz targets under libFuzzer: what `cargo fuzz run --sanitizer none --features libfuzzer`
# does, with the stable compiler and without that program.

targets=(vfio mmio pm4 sdma aql instructions engines firmware)

# build_targets DIRECTORY: with coverage of the model's branches and comparisons.
build_targets() {
    local pass=-Cllvm-args=-sanitizer-coverage name flags="--cfg fuzzing -Cpasses=sancov-module" \
        bins=()
    for name in level=4 inline-8bit-counters pc-table trace-compares; do flags+=" $pass-$name"; done
    for name in "${targets[@]}"; do bins+=(--bin "$name"); done
    (cd tools && RUSTFLAGS=$flags cargo build --quiet --package gpu-fuzz \
        --features libfuzzer "${bins[@]}" \
        --target x86_64-unknown-linux-gnu --target-dir "$1")
}

# fuzz_one WORK SECONDS TARGET: says how it went, as a test does. An input may take 60 s and the
# process 4 GiB.
fuzz_one() {
    local work=$1 seconds=$2 name=$3 status log inputs ran
    log=$work/$name.log
    mkdir -p "$work/corpus/$name" "$work/found/$name"
    timeout --kill-after=10 $((seconds + 300)) "$work/target/x86_64-unknown-linux-gnu/debug/$name" \
        "$work/corpus/$name" -artifact_prefix="$work/found/$name/" -max_total_time="$seconds" \
        -max_len=2048 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1 </dev/null
    status=$?
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    ran=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
    if [ $status = 0 ] && [ "${inputs:-0}" -gt 0 ]; then
        edges=$(awk '/ cov: / {for (i = 1; i < NF; i++) if ($i == "cov:") count = $(i + 1)}
            END {print count + 0}' "$log")
        memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
        echo "ok - $name: $inputs inputs in $ran s, $edges edges, $memory MiB"
    else
        why=$(grep -m 1 -E 'panicked|ERROR' "$log")
        echo "not ok - $name: status $status: $why; $log, $work/found/$name"
    fi
}

# fuzz_targets WORK SECONDS JOBS
fuzz_targets() {
    export -f fuzz_one
    printf '%s\n' "${targets[@]}" | xargs -P "$3" -I{} bash -c 'fuzz_one "$@"' - "$1" "$2" {}
}
