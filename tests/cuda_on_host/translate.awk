# translate.awk - a .cu file as C++ that g++ reads; line numbers stay. Three things have no C++ form:
#   kernel<<<grid, block, ...>>>(args)     kernel % HostLaunch(grid, block, ...)(args)         (device.h)
#   extern __shared__ T name[];            T *name = the block's dynamic shared memory
#   __shared__ T a[N], b;                  each becomes a reference into the block's shared memory
# A __shared__ declaration stands on one line. Launches by chain.cuh are told where they stand.
function shared_variables(line,    rest, align, type, out, n, i, part, name, dims) {
    match(line, /__shared__ +/)
    out = substr(line, 1, RSTART - 1)
    rest = substr(line, RSTART + RLENGTH)
    sub(/;.*/, "", rest)
    align = 0
    if (match(rest, /^__align__\([0-9]+\) */)) {
        align = substr(rest, 11, RLENGTH)
        sub(/\).*/, "", align)
        rest = substr(rest, RLENGTH + 1)
    }
    n = split(rest, part, /, */)
    name = part[1]
    sub(/ *\[.*/, "", name)
    type = name
    sub(/ +[A-Za-z_0-9]+$/, "", type)
    part[1] = substr(part[1], length(type) + 2)
    for (i = 1; i <= n; i++) {
        name = part[i]
        sub(/\[.*/, "", name)
        dims = substr(part[i], length(name) + 1)
        if (!align) align = "alignof(" type ")"
        out = out "HOST_SHARED(" type ", " align ", " name ", " dims "); "
    }
    return out
}
function shared_memory(line,    type, name) {
    sub(/__align__\([0-9]+\) */, "", line)
    match(line, /__shared__ +/)
    type = substr(line, RSTART + RLENGTH)
    sub(/\[\];.*/, "", type)
    name = type
    sub(/.* /, "", name)
    sub(/ +[A-Za-z_0-9]+$/, "", type)
    if (line ~ /^extern/) return "#define " name " ((" type " *)host_shared_memory())"
    return type " *" name " = (" type " *)host_shared_memory();"
}
NR == 1 { print "#line 1 \"" FILENAME "\"" }
/extern __shared__/ { print shared_memory($0); next }
/__shared__/ { print shared_variables($0); next }
FILENAME !~ /chain.cuh$/ { gsub(/cuda_launch_chained(_cluster)?\(/, "host_launched_here(), &") }
{ gsub(/<<</, " % HostLaunch("); gsub(/>>>\(/, ")("); print }
