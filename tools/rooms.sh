#!/usr/bin/env bash
# rooms.sh - checks rooms.txt: who includes whom, and which words stay in which room.
set -u
cd "$(dirname "$0")/.."
bad=0
sources=(--include='*.[ch]' --include='*.cu' --include='*.cuh')
say() { echo "rooms: $*"; bad=$((bad + 1)); }
while read -r room allowed; do
    case "$room" in ''|'#'*) continue ;; esac
    [ "$allowed" = '*' ] && continue
    while IFS=: read -r file line text; do
        seen=$(sed -E 's/.*"([a-z_]+)\/.*/\1/' <<<"$text")
        case " $room $allowed " in *" $seen "*) ;; *) say "$file:$line: $room may not include $seen" ;; esac
    done < <(grep -rnE '^#include "[a-z_]+/' "src/$room" "${sources[@]}" 2>/dev/null)
done < rooms.txt
# calls and other words, where they may stand, and why
while IFS='@' read -r pattern where why; do
    while IFS=: read -r file line _; do
        [[ $file =~ $where ]] || say "$file:$line: $why"
    done < <(grep -rnE "(^|[^a-z_>])($pattern)" src "${sources[@]}")
done <<'WORDS'
(malloc|calloc|realloc|posix_memalign|aligned_alloc) *\(@^src/base/mem\.c$@the heap is touched in base/mem.c only
(open|openat|fopen|opendir|read|pread|write|pwrite|fsync|ftruncate) *\(@^src/base/(file|child)\.c$@files: base/file.c
(rename|renameat2|unlink|rmdir|remove|mkdir) *\(@^src/base/file\.c$@files are touched in base/file.c only
pthread_create *\(@^src/(base/threads|base/courier|data/feed)\.c$@threads: base/threads.c, base/courier.c, data/feed.c
(fork|vfork|posix_spawnp?|execv[pe]*|execl[pe]*|popen|waitpid|kill) *\(@^src/base/child\.c$@processes: base/child.c only
(exit|_exit|quick_exit) *\(@^src/cli/@only cli exits
(cuda|cublas|cudnn|cu)[A-Z][A-Za-z]* *\(@^src/backend/cuda/@CUDA stays in backend/cuda
MPI_@^src/comm/mpi/@MPI stays in comm/mpi
nccl[A-Z]@^src/comm/nccl/@NCCL stays in comm/nccl
(printf|puts|putchar) *\(@^src/cli/@only cli prints to standard output (log.h speaks to people)
_mm(256|512)?_@^src/backend/cpu/@intrinsics stay in backend/cpu
(getenv|setenv) *\(@^src/cli/@environment variables are read in cli only
WORDS
[ $bad -eq 0 ] && echo "1 passed, 0 failed, 0 skipped" || echo "0 passed, 1 failed, 0 skipped"
[ $bad -eq 0 ]
