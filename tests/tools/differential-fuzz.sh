#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Runs gcn-fuzz with these options and says what came of it as a test does.
output=$(env -u CARGO_BUILD_TARGET cargo build --quiet --target-dir target \
    --workspace --bin gcn-fuzz 2>&1 && target/debug/gcn-fuzz "$@" 2>&1)
status=$?
echo "$output"
count=$(echo "$output" | grep -E '^[0-9]+ passed, [0-9]+ failed')
if [ $status = 0 ] && [[ $count == [1-9]* ]]; then
    echo "figure: $count"
    echo "ok - random kernels: $count"
else
    echo "not ok - random kernels: ${count:-no result}"
fi
