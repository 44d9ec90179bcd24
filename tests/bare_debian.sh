#!/bin/sh
# bare_debian.sh RELEASE: run ./dev demo of the last commit in a bare Debian (bookworm, trixie) and check how it ends.
# Needs root, mmdebstrap and a network; takes minutes and 4 GB of TMPDIR. CONTRIBUTING.md says when to run it.
set -eu

# Mounts and processes are the script's own and end with it, whatever ends it. In its process namespace it is process 1.
[ $$ = 1 ] || exec unshare --mount --propagation private --pid --fork --kill-child "$0" "$@"

release=${1:?usage: tests/bare_debian.sh RELEASE}
checkout=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
root=$work/root screen=$work/screen
remove() {
    umount -R "$root/proc" "$root/dev" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap remove EXIT
trap 'exit 130' INT TERM

say() { echo "bare $release: $*"; }
fail() {
    say "FAILED: $*; the end of the screen, lines of processes last:"
    grep -v '^    ' "$screen" | tail -n 40
    grep '^    ' "$screen" | tail -n 40
    exit 1
}

make_root() {
    # The mirror that this machine's apt reads Debian from.
    mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1)}
    mmdebstrap --quiet --mode=root --variant=minbase "$release" "$root" $mirror
    mkdir "$root/checkout"
    git -C "$checkout" archive HEAD | tar x -C "$root/checkout"
    # Debian's installer writes these two files, mmdebstrap does not; Java looks up the name of its machine.
    uname -n >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$root/etc/hosts"
}

# A /dev without anything of the host's, so that a device that the demo removes is missed here and nowhere else.
make_dev() {
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
    done
    mknod -m 666 "$root/dev/tty" c 5 0
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    mount -t proc proc "$root/proc"
}

list_dev() { (cd "$root/dev" && stat -c '%n %F %t:%T %a' -- *); }

# pip, npm and apt reach their registries as on the host: the same variables and configuration. Files that variables name
# (certificates) go to a folder of their own, because installing ca-certificates writes its folder anew.
pass_configuration() {
    for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p'); do
        case $name in
        PIP_* | npm_config_* | NPM_CONFIG_* | *_proxy | *_PROXY | *_CERT | *_CERTS | *_CERT_FILE | *_CA_BUNDLE)
            eval "value=\$$name"
            [ ! -f "$value" ] || { install -D -m 644 "$value" "$root/host/$name" && export "$name=/host/$name"; }
            ;;
        PATH | HOME) ;;
        *) unset "$name" ;;
        esac
    done
    for file in /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf" "$HOME/.npmrc"; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
    done
}

# Python reads its streams' encoding from LANG, as after a login.
run_demo() {
    mkdir -p "$root$HOME"
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb
    chroot "$root" /checkout/dev demo >"$screen" 2>&1 </dev/null
}

# One short line per step until the demo itself begins; what package managers print is in the log.
check_screen() {
    sed '/^\[1\/6\]/,$d' "$screen" >"$work/set-up"
    ! grep -vE '^lithify: .{1,150}$' "$work/set-up" || fail "a step of the set-up printed more than one short line"
    ! grep "could not be bundled" "$work/set-up" || fail "the pages' scripts were not bundled"
    for text in "^Setting up " "^Collecting "; do
        grep -q "$text" "$root/checkout/.lithify/set-up.log" || fail ".lithify/set-up.log has no line '$text'"
    done
}

say "making the root file system"
make_root
make_dev
pass_configuration
list_dev >"$work/dev-before"
say "running ./dev demo"
started=$(date +%s)
run_demo || fail "./dev demo ended with $?"
say "./dev demo ended after $(($(date +%s) - started)) s; its screen:"
cat "$screen"
list_dev >"$work/dev-after"
diff "$work/dev-before" "$work/dev-after" || fail "/dev has changed"
[ "$(stat -c '%F %t:%T' "$root/dev/null")" = "character special file 1:3" ] || fail "/dev/null is no null device"
check_screen
say "passed"
