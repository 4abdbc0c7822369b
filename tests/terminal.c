/* terminal.c - how a pseudo terminal is made and watched. */
#define _XOPEN_SOURCE 700
#include "tests/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

enum { PATIENCE_MS = 300000 }; /* a busy machine may need long to start a process; nothing is asserted about it */

static void become(const char *name, const char *command) { /* in the child */
    setsid();
    int fd = open(name, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0)) _exit(126);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    if (fd > 2) close(fd);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

bool terminal_start(Terminal *t, const char *before, const char *arguments) {
    const char *binary = getenv("SNUG") ? getenv("SNUG") : "./snug", *name = NULL;
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    Str command = {0};
    *t = (Terminal){.fd = posix_openpt(O_RDWR | O_NOCTTY)};
    bool ok = t->fd >= 0 && !grantpt(t->fd) && !unlockpt(t->fd) && (name = ptsname(t->fd)) && !access(name, F_OK) &&
              !ioctl(t->fd, TIOCSWINSZ, &size);
    if (!ok) { /* as in a root without /dev/pts */
        if (t->fd >= 0) close(t->fd);
        test_skip("there are no pseudo terminals");
        return false;
    }
    str_addf(&command, "%s exec %s %s", before, binary, arguments);
    t->pid = fork();
    if (!t->pid) become(name, str_text(&command));
    str_free(&command);
    return EXPECT(t->pid > 0);
}

void terminal_type(Terminal *t, const char *keys) { EXPECT(write(t->fd, keys, strlen(keys)) == (ssize_t)strlen(keys)); }

/* What is there now; false: the other side is closed, or nothing came in time. */
static bool read_some(Terminal *t, int patience_ms) {
    char some[4096];
    struct pollfd wait = {.fd = t->fd, .events = POLLIN};
    if (poll(&wait, 1, patience_ms) <= 0) return false;
    ssize_t n = read(t->fd, some, sizeof some);
    for (ssize_t i = 0; i < n; i++)
        if (some[i]) str_add_char(&t->shown, some[i]);
    return n > 0;
}

bool terminal_wait(Terminal *t, const char *words) {
    for (;;) {
        const char *at = strstr(str_text(&t->shown) + t->seen, words);
        if (at) t->seen = at + strlen(words) - t->shown.data;
        if (at) return true;
        if (read_some(t, PATIENCE_MS)) continue;
        test_note("    '%s' did not appear; shown:\n%s\n", words, str_text(&t->shown));
        return false;
    }
}

bool terminal_more(Terminal *t, int64_t bytes) {
    int64_t want = t->shown.len + bytes;
    while (t->shown.len < want)
        if (!read_some(t, PATIENCE_MS)) return false;
    t->seen = t->shown.len;
    return true;
}

/* A process that does not leave when its terminal is gone is ended: the test fails, and does not wait for ever. */
int terminal_end(Terminal *t) {
    int status = 0, tries = 0;
    while (read_some(t, PATIENCE_MS)) {}
    close(t->fd);
    while (waitpid(t->pid, &status, WNOHANG) == 0) {
        poll(NULL, 0, 10);
        if (++tries == PATIENCE_MS / 10) kill(t->pid, SIGKILL);
    }
    EXPECT(tries < PATIENCE_MS / 10);
    str_free(&t->shown);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
