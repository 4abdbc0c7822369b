# verdict.sh - counts for tests that are scripts: source it, give `verdict NAME` the exit code of what should have
# worked, end with `closing`. $work is a folder that goes away at the end; what $work/log holds is shown for a test
# that failed.
work=$(mktemp -d); trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0 left=0
verdict() { # name, exit code
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED $1"
    tail -n 20 "$work/log"
}
skip() { skipped=$((skipped + 1)); echo "  1 skipped: $1"; }
closing() {
    local counts="$passed passed, $failed failed, $skipped skipped"
    [ $left -eq 0 ] || counts+=", $left left" # to make check-all
    echo "$counts"
    [ $failed -eq 0 ]
}
