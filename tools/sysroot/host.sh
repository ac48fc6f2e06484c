# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What sysroot needs of the machine that it runs on: programs, user namespaces, room, a mirror.
# Sourced by sysroot; uses its variables.

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'sysroot: %s\n' "$*" >&2; exit 1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# What `deps` looks for: PROGRAM PACKAGE, the package by Debian's name.
host_programs='mmdebstrap mmdebstrap
bwrap bubblewrap
mke2fs e2fsprogs
cpio cpio
xz xz-utils
zstd zstd
flock util-linux
unshare util-linux'
# What the project is built and tested with; an installed kfd-vm has none of it to do.
if [ -e "$project/Kbuild" ]; then
    host_programs+='
cc gcc
make make
bc bc
valgrind valgrind'
fi

missing_packages() {
    local program package
    while read -r program package; do
        command -v "$program" >/dev/null || echo "$package"
    done <<<"$host_programs"
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
    if [ -e "$project/Kbuild" ] && command -v dpkg-query >/dev/null && ! [ -e /usr/include/stdio.h ]
    then echo libc6-dev; fi
    is_root || command -v newuidmap >/dev/null || echo uidmap
}

# install_command PACKAGES...: how this distribution installs them, for the one line of advice.
install_command() {
    local id=''
    [ ! -e /etc/os-release ] || id=$(. /etc/os-release && echo "$ID ${ID_LIKE:-}")
    case " $id " in
        *" debian "* | *" ubuntu "*) echo "apt-get install $*" ;;
        *" fedora "* | *" rhel "*)
            echo "dnf install $*" |
                sed -e 's/xz-utils/xz/; s/uidmap/shadow-utils/; s/libc6-dev/glibc-devel/' \
                -e 's/debian-archive-keyring/debian-keyring/' ;;
        *" arch "*)
            echo "pacman -S $*" | sed 's/xz-utils/xz/; s/uidmap/shadow/; s/libc6-dev/glibc/'
            ;;
        *) echo "install $*" ;;
    esac
}

# deps: names all that is missing before anything is downloaded; as root on Debian, installs it.
deps() {
    local missing
    mapfile -t missing < <(missing_packages)
    [ ! -e "$project/Kbuild" ] || command -v cargo >/dev/null ||
        die "cargo is missing: install Rust 1.85 or newer (the rustup or cargo package)"
    if [ ${#missing[@]} -gt 0 ]; then
        is_root && command -v apt-get >/dev/null ||
            die "missing: ${missing[*]}; as root: $(install_command "${missing[@]}")"
        say "installing host packages: ${missing[*]}"
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "${missing[@]}" >/dev/null || die "could not install ${missing[*]}"
    fi
    is_root || check_namespaces
}

# An ordinary user makes roots in user namespaces: are they allowed, with a range of user ids?
check_namespaces() {
    local user why
    user=$(id -un)
    unshare --user --map-root-user true 2>/dev/null || {
        why='this machine does not allow user namespaces'
        [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" != 1 ] ||
            why+=' (sysctl kernel.apparmor_restrict_unprivileged_userns=0 allows them)'
        die "$why: run this as root"
    }
    grep -qs "^$user:" /etc/subuid && grep -qs "^$user:" /etc/subgid || die \
        "$user has no range in /etc/subuid and /etc/subgid; as root:" \
        "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user"
}

# need_room GIB WHAT: says what will be used, and stops before the download when it is not there.
need_room() {
    local free
    mkdir -p "$cache"
    free=$(df --output=avail -BG "$cache" | tail -n 1 | tr -dc 0-9)
    say "$2 takes about $1 GiB in $cache ($free GiB are free)"
    [ "$free" -ge "$1" ] || die "$2 needs $1 GiB in $cache, and $free GiB are free"
}

# Others have repositories for Debian under such a name, too: the origin tells, or, where the index
# was not fetched yet, that there are updates of a release.
mirror() {
    if [ -n "${MIRROR:-}" ]; then echo "$MIRROR"; return; fi
    local found=''
    ! command -v apt-get >/dev/null ||
        found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(ORIGIN)' \
            'Created-By: Packages' 2>/dev/null |
            awk '$1 !~ /\/debian\/?$/ {next}
                NF == 3 && $3 == "Debian" || NF == 2 && $2 ~ /-updates$/ {print $1; exit}' |
            sed 's#/$##')
    # On another distribution: the name that Debian serves everybody under.
    echo "${found:-http://deb.debian.org/debian}"
}

# Whether an index beyond its date is taken is the machine's own choice: a mirror may stand still.
check_valid_until() {
    local checked=true
    ! command -v apt-config >/dev/null ||
        eval "$(apt-config shell checked Acquire::Check-Valid-Until/b)"
    echo "Acquire::Check-Valid-Until=$checked"
}

# sources SUITE: apt's lines for it. Experimental is sid, with packages taken by NAME/experimental.
sources() {
    local url
    url=$(mirror)
    case $1 in
        sid) echo "deb $url sid main" ;;
        experimental) printf '%s\n' "deb $url sid main" "deb $url experimental main" ;;
        *)
            printf '%s\n' "deb $url $1 main" "deb $url $1-updates main" "deb $url $1-backports main"
            ;;
    esac
}

# locked NAME FUNCTION ARGS...: one builder at a time for each cache entry.
locked() {
    local name=$1; shift
    mkdir -p "$cache/lock"
    ( flock 9; "$@" ) 9>"$cache/lock/$name"
}

# in_root ROOT CMD...: with the project and the cache at their own paths; root inside. /tmp is the
# root's own: the directory that the machine has for temporary files is not there.
in_root() {
    local root=$1; shift
    local mounts=(--bind "$root" / --dev-bind /dev /dev --ro-bind /sys /sys --tmpfs /tmp \
        --tmpfs /run)
    local dir cwd=$PWD
    if is_root; then mounts+=(--proc /proc)
    else mounts+=(--unshare-user --uid 0 --gid 0 --bind /proc /proc); fi
    [ ! -s /etc/resolv.conf ] || mounts+=(--ro-bind /etc/resolv.conf /etc/resolv.conf)
    for dir in "$project" "$cache"; do mounts+=(--bind "$dir" "$dir"); done
    # A worktree's git directory lies outside of it, and a caller may stand elsewhere.
    for dir in ${SYSROOT_BIND:-}; do mounts+=(--bind "$dir" "$dir"); done
    case "$cwd/" in "$project"/* | "$cache"/*) ;; *) cwd=$project ;; esac
    bwrap "${mounts[@]}" --die-with-parent --chdir "$cwd" --setenv HOME /root \
        --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv LC_ALL C.UTF-8 \
        --unsetenv TMPDIR --unsetenv TMP --unsetenv TEMP "$@"
}

in_build_root() { in_root "$build_root" "$@"; }

# in_bare_build_root CMD...: nothing of the caller's settings (LLVM=1, KCFLAGS, RUSTFLAGS, what make
# passes on) decides what a kernel in the cache, or a package, becomes.
in_bare_build_root() {
    in_build_root sh -c 'exec env -i HOME="$HOME" PATH="$PATH" LC_ALL="$LC_ALL" "$@"' sh "$@"
}
