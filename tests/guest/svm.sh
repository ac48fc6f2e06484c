# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The steps of compare/svm and compare/svm-2gpus: sourced after lib.sh.

for mode in '' --xnack; do
    echo "XNACK: ${mode:-off}"
    # shellcheck disable=SC2086
    kfd-tests svm attributes $mode || exit 1
    for seed in 1 2 3 4 5 6; do
        echo "seed $seed"
        # shellcheck disable=SC2086
        kfd-tests svm generated $mode --seed $seed --steps 300 || exit 1
    done
done
