#!/usr/bin/env bash
# rooms.sh - checks rooms.txt: who includes whom, and which words stay in which room.
set -u
cd "$(dirname "$0")/.."
bad=0
say() { echo "rooms: $*"; bad=$((bad + 1)); }
while read -r room allowed; do
    case "$room" in ''|'#'*) continue ;; esac
    [ "$allowed" = '*' ] && continue
    while IFS=: read -r file line text; do
        seen=$(sed -E 's/.*"([a-z_]+)\/.*/\1/' <<<"$text")
        case " $room $allowed " in *" $seen "*) ;; *) say "$file:$line: $room may not include $seen" ;; esac
    done < <(grep -rnE '^#include "[a-z_]+/' "src/$room" --include='*.[ch]' --include='*.cu' --include='*.cuh' 2>/dev/null)
done < rooms.txt
# word: pattern, where it may stand
while IFS='@' read -r pattern where why; do
    while IFS=: read -r file line _; do
        [[ $file =~ $where ]] || say "$file:$line: $why"
    done < <(grep -rnE "$pattern" src --include='*.[ch]' --include='*.cu' --include='*.cuh')
done <<'WORDS'
(^|[^a-z_])(malloc|calloc|realloc|posix_memalign|aligned_alloc) *\(@^src/base/mem\.c$@the heap is touched in base/mem.c only
(^|[^a-z_>])(open|openat|fopen|read|pread|write|pwrite|fsync|rename|renameat2|unlink|rmdir|remove|mkdir|ftruncate|opendir) *\(@^src/base/(file|child)\.c$@files are touched in base/file.c only (pipes in base/child.c)
(^|[^a-z_])pthread_create *\(@^src/(base/threads|base/courier|data/feed)\.c$@threads are made in base/threads.c, base/courier.c and data/feed.c only
(^|[^a-z_])(fork|vfork|posix_spawnp?|execv[pe]*|execl[pe]*|popen|waitpid|kill) *\(@^src/base/child\.c$@other processes are started and ended in base/child.c only
(^|[^a-z_])(exit|_exit|quick_exit) *\(@^src/cli/@only cli exits
(^|[^a-z_])(cuda|cublas|cudnn|cu)[A-Z][A-Za-z]* *\(@^src/backend/cuda/@CUDA stays in backend/cuda
(^|[^a-z_])MPI_@^src/comm/mpi/@MPI stays in comm/mpi
(^|[^a-z_])nccl[A-Z]@^src/comm/nccl/@NCCL stays in comm/nccl
(^|[^a-z_])(printf|puts|putchar) *\(@^src/cli/@only cli prints to standard output (log.h speaks to people)
(^|[^a-z_0-9])_mm(256|512)?_@^src/backend/cpu/@intrinsics stay in backend/cpu
(^|[^a-z_])(getenv|setenv) *\(@^src/cli/@environment variables are read in cli only
WORDS
[ $bad -eq 0 ] && echo "1 passed, 0 failed, 0 skipped" || echo "0 passed, 1 failed, 0 skipped"
[ $bad -eq 0 ]
