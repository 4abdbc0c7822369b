#!/usr/bin/env bash
# bare_roots.sh [ROOT...] - the two commands of the README in fresh Debian systems with nothing but make, each with a
# trap in it: a clone of the last commit, `make demo`, `make check`, and a table of how they went. Without a name: all
# roots.
#
#   plain, plain-13     Debian 12, Debian 13
#   reference-blas(-13) a BLAS is installed, which snug does not use
#   old-clang           cc is clang 13 and there is no gcc
#   no-sudo             an ordinary user without sudo: refused with what to install; works when that is there
#   space               the clone lies in a folder with a space in its name
#   read-only-home      nothing can be written in HOME
#   ubuntu-22.04, ubuntu-24.04   by name only: their packages' keys must be there (ubuntu-archive-keyring.gpg)
#
# Needs root, debootstrap (installed where apt-get can) and a network; exit 77 where one of them is not to be had.
# ROOTS=DIR (build/roots) keeps base systems and packages for the next time, MIRROR=URL is where they come from, KEEP=1
# leaves the roots there, DEMO_ONLY=1 leaves out the check.
set -u
cd "$(dirname "$0")/.."
roots=${ROOTS:-$PWD/build/roots}
all="plain plain-13 reference-blas reference-blas-13 old-clang no-sudo space read-only-home"
by_name="ubuntu-22.04 ubuntu-24.04"

cannot() { echo "bare roots: not made here: $*"; exit 77; }
prepare_host() {
    [ "$(id -u)" -eq 0 ] || cannot "it takes root"
    unshare --mount --pid --fork true 2>/dev/null || cannot "namespaces are not permitted"
    command -v debootstrap >/dev/null && return
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap; } >/dev/null 2>&1 ||
        cannot "debootstrap is missing and could not be installed"
}

suite_of() {
    case $1 in
    ubuntu-22.04) echo jammy ;;
    ubuntu-24.04) echo noble ;;
    *-13 | space) echo trixie ;;
    *) echo bookworm ;;
    esac
}

base() { # suite: a bare system, made once
    local to=$roots/base-$1 components=main
    [ -e "$to.done" ] && return
    rm -rf "$to"
    echo "making a bare $1"
    case $1 in jammy | noble) components=main,universe ;; esac
    debootstrap --variant=minbase --include=make --components=$components "$1" "$to" ${MIRROR:+"$MIRROR"} \
        > "$roots/base-$1.log" 2>&1 ||
        { tail -n 3 "$roots/base-$1.log"; cannot "debootstrap $1 failed"; }
    touch "$to.done"
}

# Mounts are those of a namespace of its own, and so are processes: both go with it.
inside() { # command...: in the current root, as root, with what little a fresh system says in its environment
    unshare --mount --pid --fork sh -eu -c '
        root=$1; shift
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
        if mkdir -p "$root/dev/pts" && mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
        then # terminals of its own, for the tests that type
            [ -e "$root/dev/ptmx" ] || ln -s pts/ptmx "$root/dev/ptmx"
        fi 2>/dev/null
        [ -z "$FROZEN" ] || { mkdir -p "$root$FROZEN"; mount -t tmpfs -o ro tmpfs "$root$FROZEN"; }
        exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME="$HOME_INSIDE" TERM=dumb http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
            DEBIAN_FRONTEND=noninteractive "$@"' \
        sh "$root" "$@" < /dev/null
}
install_inside() { inside sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $*"; }
as_user() { # shell command in the clone
    if [ "$user" = root ]; then inside sh -c "cd '$clone' && $1"
    else inside su -s /bin/sh "$user" -c "cd '$clone' && $1"; fi
}

set_trap() { # name: what is odd about this root
    user=root clone=/opt/snug FROZEN="" HOME_INSIDE=/root
    case $1 in
    reference-blas*) install_inside libblas-dev ;;
    old-clang)
        install_inside clang-13 && inside update-alternatives --install /usr/bin/cc cc /usr/bin/clang-13 100 &&
            ! inside which gcc ;;
    no-sudo) user=someone HOME_INSIDE=/home/someone && inside useradd --create-home someone ;;
    space) clone="/opt/a clone/snug" ;;
    read-only-home) FROZEN=/home/frozen HOME_INSIDE=/home/frozen ;;
    esac
    export FROZEN HOME_INSIDE
}

# The refusal names a line for apt-get: that line is what installs the rest.
refused_with_advice() {
    local said line
    said=$(as_user "make demo" 2>&1) && { echo "make demo was to be refused"; return 1; }
    echo "$said"
    grep -q '  CC  ' <<<"$said" && { echo "something was compiled"; return 1; }
    line=$(sed -n 's/.*sudo apt-get install //p' <<<"$said")
    [ -n "$line" ] && grep -q 'sudo dnf install' <<<"$said" && install_inside "$line"
}

timed() { # label, command...: its seconds or FAILED into the row
    local at=$SECONDS; shift
    if "$@" >> "$log" 2>&1; then row+=" $(printf '%11s' "$((SECONDS - at)) s")"; return 0; fi
    row+=" $(printf '%11s' FAILED)"
    return 1
}

one() { # name
    local name=$1 suite; suite=$(suite_of "$1")
    root=$roots/$name log=$roots/$name.log row=$(printf '%-18s %-9s' "$name" "$suite")
    base "$suite"
    rm -rf "$root"
    cp -a --reflink=auto "$roots/base-$suite" "$root"
    mkdir -p "$roots/archives-$suite"
    cp -f /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
    cp -n "$roots/archives-$suite"/*.deb "$root/var/cache/apt/archives/" 2>/dev/null
    : > "$log"
    local ok=0
    echo "-- $name: the trap" >> "$log"
    set_trap "$name" >> "$log" 2>&1 || ok=1
    mkdir -p "$root$(dirname "$clone")" && git clone -q --no-hardlinks . "$root$clone" >> "$log" 2>&1 || ok=1
    [ "$user" = root ] || inside chown -R "$user" "$clone"
    [ $ok -eq 1 ] || [ "$name" != no-sudo ] || refused_with_advice >> "$log" 2>&1 || ok=1
    [ $ok -eq 1 ] || timed demo as_user "make demo" || ok=1
    [ $ok -eq 1 ] || [ "${DEMO_ONLY:-0}" = 1 ] || timed check as_user "make check" || ok=1
    cp -n "$root/var/cache/apt/archives"/*.deb "$roots/archives-$suite/" 2>/dev/null
    echo "$row  $([ $ok -eq 0 ] && grep -aE '^[0-9]+ passed, ' "$log" | tail -n 1 || echo "FAILED, see $log")"
    [ $ok -eq 0 ] || tail -n 15 "$log" | sed 's/^/    /'
    [ "${KEEP:-0}" = 1 ] || rm -rf "$root"
    return $ok
}

for name in "$@"; do
    case " $all $by_name " in *" $name "*) continue ;; esac
    echo "bare roots: there is no '$name'; there are: $all $by_name" >&2
    exit 2
done
prepare_host
mkdir -p "$roots"
printf '%-18s %-9s %11s %11s  %s\n' root system "make demo" "make check" result
bad=0
for name in ${*:-$all}; do one "$name" || bad=1; done
exit $bad
