#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# libraries.sh LIBRARY: runs parts of the test programs that Debian packages with a ROCm library
# (tests/libraries/LIBRARY.parts), on either driver, and says what came of it as a test does.
#
# Those of experimental (ROCm 7.2), which have code for an MI300X, are in a root of their own. Those
# of stable (5.7) have code for an MI250X: LIBRARY-mi250x runs them beside the usual root.
#
# A part is good when each of its tests has the same result on both, as many as its line says pass,
# and what does not pass is in tests/libraries/explained. LIBRARIES_PARTS runs only these parts,
# LIBRARIES_LATE is how many seconds one may take. What a part printed is kept below
# build/libraries, by a key of what it depends on but for our module: one that was stopped goes on
# with the part that it was at. Experimental moves: when the archive offers no such packages,
# nothing is tested, and that is a failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
library=$1 late=${LIBRARIES_LATE:-900}
parts=tests/libraries/$library.parts explained=tests/libraries/explained
log=build/tests/tools-libraries-$library
mkdir -p build/tests build/libraries
share=build/libraries/$library
rm -rf "$share"
mkdir -p "$share"
cp tests/libraries/{run.sh,"$library.parts"} "$share"
case $library in
    *-mi250x)
        root=trixie vm=(--gpu mi250x)
        for package in librocrand1 librocrand1-tests; do
            from=$(tools/sysroot/sysroot package $root "$package" 2>$log.root) || {
                echo "not ok - nothing was tested: $(tail -n 1 $log.root)"
                exit 1
            }
            cp -L "$from"/usr/lib/*/librocrand.so.1 "$share" 2>/dev/null
            cp -r "$from"/usr/libexec/rocm/* "$share" 2>/dev/null
        done
        within=(env LD_LIBRARY_PATH=/mnt/share LIBRARIES_PROGRAMS=/mnt/share)
        ;;
    *)
        root=libraries vm=(--root libraries) within=()
        tools/sysroot/sysroot guest-root $root >$log.root 2>&1 || {
            echo "not ok - nothing was tested: $(tail -n 1 $log.root)"
            exit 1
        }
        ;;
esac
eval "$(tools/sysroot/sysroot shell-env $root)"
# What is not the driver: the guest's image by its name, the kernel, the model, how it is run.
same=$({ echo "$GUEST_IMAGE $KERNEL_RELEASE $late"
    cat tests/libraries/run.sh
    git ls-files -s tools/crates tools/Cargo.lock
    git diff HEAD -- tools/crates; } | sha256sum | cut -c1-16)
driver=$({ git ls-files -s Kbuild rust uapi
    git diff HEAD -- Kbuild rust uapi; } | sha256sum | cut -c1-16)
: >$log.c
: >$log.rust
while read -r part least words; do
    case $part in '' | '#'*) continue ;; esac
    [[ " ${LIBRARIES_PARTS:-$part} " = *" $part "* ]] || continue
    for kfd in c rust; do
        key=$(echo "$same $words $([ $kfd = c ] || echo "$driver")" | sha256sum | cut -c1-16)
        kept=build/libraries/$part-$kfd-$key
        if [ ! -e "$kept" ]; then
            tools/kfd-vm run "${vm[@]}" --mem 4G --kfd $kfd --share "$share:ro" \
                --timeout $((late + 60)) --log "$log-$part.$kfd.dmesg" -- \
                "${within[@]}" /mnt/share/run.sh "/mnt/share/$library.parts" "$late" "$part" \
                >"$kept.part" 2>"$log-$part.$kfd.err" </dev/null &&
                mv "$kept.part" "$kept" ||
                echo "not ok - $part: the guest on $kfd: $(tail -n 1 "$log-$part.$kfd.err")"
        fi
        [ ! -e "$kept" ] || cat "$kept" >>$log.$kfd
    done
done <"$parts"
python3 tests/libraries/judge.py $parts $explained $log.c $log.rust
