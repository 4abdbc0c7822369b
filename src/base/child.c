/* child.c - the one place that starts, reads, writes and ends other processes. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"

enum { LOOK_MS = 2 }; /* between looks at a process that is about to end */

extern char **environ;

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- starting ---- */

/* Both ends above 2, so that they are not closed or covered when the child's own are put there. */
static bool open_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC)) return false;
    for (int i = 0; i < 2; i++) {
        int low = ends[i];
        if (low > STDERR_FILENO) continue;
        ends[i] = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(low);
    }
    if (ends[0] >= 0 && ends[1] >= 0) return true;
    close_end(&ends[0]);
    close_end(&ends[1]);
    return false;
}

/* Signals as a program expects them: none blocked, those we ignore as they are by default. */
static void set_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGHUP);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(attributes, 0);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &usual);
}

static int spawn(pid_t *pid, const char *const *argv, int in, int out, int err) {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    set_attributes(&attributes);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (err >= 0) posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
    int status = posix_spawnp(pid, argv[0], &files, &attributes, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return status;
}

bool child_start(Child *c, const char *const *argv, int err_fd, Err *e) {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    pid_t pid = 0;
    *c = (Child){.in = -1, .out = -1};
    bool piped = !fault_here(FAULT_PROCESS, argv[0]) && open_pipe(to) && open_pipe(from);
    int status = !piped || fault_here(FAULT_PROCESS, argv[0]) ? errno : spawn(&pid, argv, to[0], from[1], err_fd);
    close_end(&to[0]);
    close_end(&from[1]);
    if (status) {
        close_end(&to[1]);
        close_end(&from[0]);
        return fail(e, ERR_FAIL, "%s: cannot be started: %s", argv[0], strerror(status));
    }
    fcntl(to[1], F_SETFL, O_NONBLOCK);
    fcntl(from[0], F_SETFL, O_NONBLOCK);
    *c = (Child){(int)pid, to[1], from[0]};
    return true;
}

/* ---- speaking ---- */

/* A closed pipe raises SIGPIPE at whoever writes: here it is only an answer. */
static ssize_t write_quietly(int fd, const void *from, size_t bytes) {
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t n = write(fd, from, bytes);
    int error = errno;
    if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

static int64_t moved(ssize_t n) {
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

int64_t child_write(Child *c, const void *from, int64_t bytes) {
    if (c->in < 0 || fault_here(FAULT_WRITE, "pipe")) return -1;
    return moved(write_quietly(c->in, from, (size_t)bytes));
}

int64_t child_read(Child *c, void *to, int64_t room) {
    CHECK(room > 0);
    if (c->out < 0 || fault_here(FAULT_READ, "pipe")) return -1;
    ssize_t n = read(c->out, to, (size_t)room);
    return n == 0 ? -1 : moved(n);
}

void child_end_input(Child *c) {
    close_end(&c->in);
}

void child_wait(ChildWait *w, int n, int milliseconds) {
    struct pollfd polled[2 * CHILD_WAIT_MOST];
    CHECK(n <= CHILD_WAIT_MOST);
    for (int i = 0; i < n; i++) { /* a negative descriptor is passed over */
        polled[2 * i] = (struct pollfd){.fd = w[i].c->pid ? w[i].c->out : -1, .events = POLLIN};
        polled[2 * i + 1] =
            (struct pollfd){.fd = w[i].c->pid && w[i].wants_room ? w[i].c->in : -1, .events = POLLOUT};
    }
    bool ready = poll(polled, (nfds_t)(2 * n), milliseconds) > 0;
    for (int i = 0; i < n; i++) {
        w[i].has_bytes = ready && polled[2 * i].revents;
        w[i].has_room = ready && polled[2 * i + 1].revents;
    }
}

/* ---- a command in the foreground ---- */

/* What follows the fork in the child; the reason why the program cannot be loaded goes through the pipe. */
_Noreturn static void become(const char *const *argv, int report) {
    static const int usual[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};
    sigset_t none;
    for (int i = 0; i < COUNT_OF(usual); i++) signal(usual[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], (char *const *)argv);
    int error = errno;
    child_write(&(Child){.in = report}, &error, sizeof error);
    for (;;) kill(getpid(), SIGKILL); /* an exit would run what was left for the end of our own process */
}

/* A fork, not a spawn: the kernel counts what was resident before the program was loaded into its peak. A spawned
 * child shares all our pages until then, a forked one has only the few that are not of files. */
static int run(pid_t *pid, const char *const *argv) {
    int report[2], error = 0;
    if (fault_here(FAULT_PROCESS, argv[0]) || pipe2(report, O_CLOEXEC)) return errno;
    *pid = fork();
    if (!*pid) become(argv, report[1]);
    if (*pid < 0) error = errno;
    close(report[1]);
    ssize_t n = 0;
    while (*pid > 0 && (n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
    if (n > 0) waitpid(*pid, NULL, 0);
    close(report[0]);
    return error;
}

bool child_run(int *pid, const char *const *argv, Err *e) {
    pid_t id = 0;
    int status = run(&id, argv);
    *pid = (int)id;
    if (status) return fail_system(e, status, "%s: cannot be started: %s", argv[0], strerror(status));
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what it leaves behind stays below us, and is counted */
    return true;
}

bool child_ended(int pid, ChildEnd *end) {
    int status = 0;
    struct rusage used = {0};
    pid_t got = wait4(pid, &status, WNOHANG, &used);
    if (got == 0 || (got < 0 && errno == EINTR)) return false;
    *end = (ChildEnd){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                      .peak_bytes = (int64_t)used.ru_maxrss << 10};
    return true;
}

void child_send(int pid, int signal) {
    kill(pid, signal);
}

/* ---- ending ---- */

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* It is not collected yet: until then nobody else gets its number. */
static bool has_ended(int pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static void describe(char *how, int status, bool by_us) {
    if (WIFEXITED(status))
        snprintf(how, CHILD_HOW, "exit code %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status) && !by_us)
        snprintf(how, CHILD_HOW, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, CHILD_HOW, "ended by us");
}

void child_stop(Child *c, double seconds, char how[CHILD_HOW]) {
    int status = 0;
    double until = now_seconds() + seconds;
    close_end(&c->in);
    if (how) how[0] = 0;
    if (c->pid > 0) {
        bool ended = has_ended(c->pid);
        while (!ended && now_seconds() < until) {
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
            ended = has_ended(c->pid);
        }
        kill(-c->pid, SIGKILL); /* and what it started, whether or not it ended itself */
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) continue;
        if (how) describe(how, status, !ended);
    }
    close_end(&c->out);
    c->pid = 0;
}
