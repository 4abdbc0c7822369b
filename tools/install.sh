#!/usr/bin/env bash
# install.sh BINARY TO - puts the binary, recipes, models, docs and licence below TO (bin, share/snug, share/doc/snug),
# replacing an earlier installation's; install.sh --remove TO takes them away again.
set -eu
what=$1 to=$2
cd "$(dirname "$0")/.."
remove() { rm -rf "$to/bin/snug" "$to/share/snug" "$to/share/doc/snug"; }
if [ "$what" = --remove ]; then remove; exit; fi
umask 022
for folder in bin share share/doc; do
    mkdir -p "$to/$folder" 2>/dev/null && [ -w "$to/$folder" ] || {
        echo "$to/$folder cannot be written: use sudo make install, or PREFIX=DIR (PREFIX=\$HOME/.local)" >&2
        exit 1
    }
done
remove
install -m 755 "$what" "$to/bin/snug"
copy() { # folder, file or folder...
    local into=$1; shift
    mkdir -p "$into"
    cp -R "$@" "$into"
    chmod -R u=rwX,go=rX "$into"
}
copy "$to/share/snug" recipes models
copy "$to/share/doc/snug" LICENSE README.md ARCHITECTURE.md docs
echo "installed: $to/bin/snug, $to/share/snug, $to/share/doc/snug"
