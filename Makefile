# SPDX-License-Identifier: GPL-2.0-only OR MIT
# amdkfd-rs. "make help" lists the targets; README.md tells what they are for.

SHELL := /bin/bash
export CARGO_TERM_COLOR ?= auto

.PHONY: all help sysroot module module-debug module-tests tools userspace guest demo
.PHONY: test test-long check deb install install-build image doc fmt clean
.DELETE_ON_ERROR:

all: module tools userspace

help:
	@echo "KERNEL=SERIES   before or behind these: another kernel than the suite's newest"
	@echo "make            build the module, the tools and userspace"
	@echo "make module     amdkfd.ko alone (module-debug: for the debug kernel)"
	@echo "make guest      what guests see at /mnt/share, in build/guest"
	@echo "make demo       boot a stock kernel with a modelled GPU, take over, run GPU kernels"
	@echo "make test       all tests that fit an hour; ends with \"N passed, N failed\""
	@echo "make test-long  the larger bars as well, in parts that can be resumed"
	@echo "make deb        the Debian packages, in build/deb"
	@echo "make install-build  kfd-vm and kfdctl, to run without this tree"
	@echo "make install    puts what that has built there, as root (PREFIX, DESTDIR)"
	@echo "make image      a container's image with a GPU in it, in build/image"
	@echo "make doc        the book and the crates' pages, in build/book and build/doc"
	@echo "make check      formatting, clippy, lengths, layers and documents"
	@echo "make clean      remove what was built here (the cache in ~/.cache/amdkfd-rs stays)"

sysroot:
	@tools/sysroot/sysroot all

# amdkfd.ko for the stock kernel.
module: sysroot
	@tools/build-module

# The same source for the debug kernel, in build/debug; it is copied, while nothing is built in it.
module-debug: module
	@tools/build-module --debug

# Into the tree, wherever the user has cargo put what it builds: it is run from there. cargo asks
# rustc of the host with its own standard input: where make was given none, that can be a file with
# another target's output (--output-sync).
cargo_build := env -u CARGO_BUILD_TARGET cargo build --quiet --target-dir target </dev/null

tools: sysroot
	@cd tools && $(cargo_build)

userspace: sysroot
	@cd userspace && $(cargo_build)

# Modules that tests load.
module-tests: sysroot
	@tools/build-module --tests

# What the guests of the demo and the tests see at /mnt/share.
# KERNEL=... (tools/sysroot/sysroot) has modules of its own, below $(BUILD_DIR).
hip_programs := $(addprefix build/guest/hip_, vadd gemm programs debugged managed printed)
guest: module module-tests tools userspace $(hip_programs)
	@tools/guest-share

# As this file, too: it has the GPUs' names.
build/guest/hip_%: tests/hip/%.hip Makefile
	@mkdir -p build/guest
	@tools/sysroot/sysroot run hipcc --offload-arch=gfx942 --offload-arch=gfx90a -O2 -rdynamic \
		$$(sed -n 's,^// hipcc: ,,p' $<) -o $@ $< -lhsa-runtime64 -ldl

demo:
	@tools/demo

# What is built one by one does not keep all CPUs busy.
test: sysroot
	@$(MAKE) --no-print-directory --jobs=$(shell nproc) --output-sync=target \
		guest module-debug </dev/null
	@tests/run

test-long: guest module-debug
	@tests/run --long

# What needs no guest; `make test` has it, too.
checks := lint lengths layers docs clippy
check: sysroot
	@for check in $(checks); do tests/tools/$$check.test || failed=1; done; exit $${failed:-0}

# amdkfd-rs-dkms, kfdctl and amdkfd-rs-vm.
deb:
	@tools/make-deb

# kfd-vm, its parts, kfdctl and, if it was built, the module; below $(DESTDIR)$(PREFIX), where only
# root may write: nothing is built then.
PREFIX ?= /usr/local
PROFILE ?= release
install-build: sysroot
	@PROFILE="$(PROFILE)" tools/install --build
install:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" PROFILE="$(PROFILE)" tools/install

# A container's image, in OCI's layout in build/image.
image: sysroot module
	@PROFILE="$(PROFILE)" tools/make-image

# The book (mdbook is installed into the cache) and what rustdoc makes of the crates to publish.
doc:
	@tools/doc

# By name, not by a kernel's build: that would fetch a kernel first.
objects := *.o *.o.d *.ko *.mod *.mod.c .*.cmd *.cmd *.rcgu.* *.rmeta *_generated.* .tmp_*
objects += Module.symvers modules.order
clean:
	@rm -rf build tools/target userspace/target
	@find . -maxdepth 1 -type f \( -false $(objects:%=-o -name '%') \) -delete
	@find rust uapi tests/modules -type f \( -false $(objects:%=-o -name '%') \) -delete
