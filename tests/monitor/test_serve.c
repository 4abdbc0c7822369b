/* test_serve.c - the monitor in a browser, asked over a socket: what is answered to whom, and that it ends when
 * asked to. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "tests/monitor/fakes.h"
#include "tests/snug.h"
#include "tests/world.h"

typedef struct Served {
    pid_t pid;
    int port;
} Served;

/* In the folder "v" with such options; false after test_skip. */
static bool start(Served *s, const char *options) {
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        test_skip("there is no libmicrohttpd");
        return false;
    }
    dlclose(library);
    if (!use_nvml("fake_nvml.so")) return false;
    char arguments[300];
    snprintf(arguments, sizeof arguments, "monitor --serve any --interval 0.1 %s", options);
    s->pid = world_start("v", world_binary(), NULL, arguments);
    if (!EXPECT(world_says("v", "http://"))) return false;
    Str err = {0};
    for (s->port = 0; !s->port;) { /* the line may be half written */
        world_said(NULL, &err, "v");
        const char *at = strstr(str_text(&err), "http://");
        const char *colon = at ? strchr(at + 7, ':') : NULL;
        if (colon && strchr(colon, '\n')) s->port = atoi(colon + 1);
    }
    str_free(&err);
    return true;
}

static int connect_to(int port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0)) test_note("    port %d", port);
    return fd;
}

static void send_request(int fd, const char *method, const char *path, const char *headers) {
    Str request = {0};
    str_addf(&request, "%s %s HTTP/1.1\r\n%sConnection: close\r\n\r\n", method, path, headers);
    EXPECT(write(fd, request.data, (size_t)request.len) == request.len);
    str_free(&request);
}

/* Until the other side closes, or (events NULL: never) so many lines "data:" have come. */
static void receive(Str *out, int fd, int events) {
    char some[4096];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (ssize_t n; poll(&wait, 1, 300000) > 0 && (n = read(fd, some, sizeof some)) > 0;) {
        str_add_bytes(out, some, n);
        int seen = 0;
        for (const char *at = str_text(out); (at = strstr(at, "data: ")); at++) seen++;
        if (events && seen >= events) return;
    }
}

static const char local[] = "Host: 127.0.0.1\r\n";

static int status_of(Str *reply, const Served *s, const char *method, const char *path, const char *headers) {
    int fd = connect_to(s->port);
    str_clear(reply);
    send_request(fd, method, path, headers);
    receive(reply, fd, 0);
    close(fd);
    return reply->len > 12 ? atoi(reply->data + 9) : 0;
}

static const char *content(const Str *reply) {
    const char *at = strstr(str_text(reply), "\r\n\r\n");
    return at ? at + 4 : "";
}

static void end(const Served *s) {
    Str err = {0};
    kill(s->pid, SIGINT);
    int code = world_wait(s->pid);
    world_said(NULL, &err, "v");
    if (!EXPECT(code == 0)) test_note("    exit %d\n%s", code, str_text(&err));
    str_free(&err);
}

TEST(a_browser_gets_one_page_that_needs_nothing_else) {
    Served s;
    Str r = {0};
    if (!start(&s, "")) return;
    EXPECT(status_of(&r, &s, "GET", "/", local) == 200 &&
           strstr(r.data, "Content-Security-Policy: default-src 'none'"));
    const char *fault = html_fault(content(&r));
    if (!EXPECT(!fault)) test_note("    %s", fault);
    EXPECT(!strstr(content(&r), "src=\"http") && !strstr(content(&r), "@import") &&
           !strstr(content(&r), "innerHTML"));
    EXPECT(status_of(&r, &s, "GET", "/nothing", local) == 404);
    EXPECT(status_of(&r, &s, "GET", "/../../etc/passwd", local) == 404);
    EXPECT(status_of(&r, &s, "GET", "/job?pid=1", local) == 404);
    EXPECT(status_of(&r, &s, "POST", "/", "Host: localhost\r\nContent-Length: 3\r\n") == 405);
    str_free(&r);
    end(&s);
}

TEST(figures_for_prometheus_have_their_names_escaped) {
    Served s;
    Str r = {0};
    if (!start(&s, "")) return;
    EXPECT(status_of(&r, &s, "GET", "/metrics", local) == 200 && strstr(r.data, "text/plain; version=0.0.4"));
    EXPECT(strstr(content(&r), "snug_gpu_memory_used_bytes{gpu=\"0\",name=\"Fake GPU\"} 21474836480\n"));
    EXPECT(strstr(content(&r), "snug_gpu_utilization_ratio{gpu=\"0\",name=\"Fake GPU\"} 0.97\n"));
    EXPECT(strstr(content(&r),
                  "snug_gpu_temperature_celsius{gpu=\"1\",name=\"Evil?[2J?\\\"GPU\\\", </script><b>\"} 35\n"));
    EXPECT(strstr(content(&r), "# TYPE snug_host_memory_total_bytes gauge\n"));
    str_free(&r);
    end(&s);
}

TEST(events_begin_with_the_past_and_go_on_until_the_monitor_leaves) {
    Served s;
    Str r = {0};
    if (!start(&s, "")) return;
    int fd = connect_to(s.port), idle = connect_to(s.port);
    send_request(fd, "GET", "/events", local);
    receive(&r, fd, 4);
    const char *past = strstr(str_text(&r), "event: past\ndata: {\"host_memory\":[");
    EXPECT(strstr(str_text(&r), "text/event-stream") && past && strstr(past, "\n\ndata: {\"time\":"));
    end(&s); /* with a listener that waits and a connection that asked nothing */
    str_free(&r);
    close(fd);
    close(idle);
}

TEST(only_who_has_the_token_may_look) {
    Served s;
    Str r = {0};
    if (!start(&s, "--token s3cret")) return;
    EXPECT(status_of(&r, &s, "GET", "/snapshot.json", local) == 401 && !strstr(r.data, "Fake GPU"));
    EXPECT(status_of(&r, &s, "GET", "/snapshot.json?token=s3cre", local) == 401);
    EXPECT(status_of(&r, &s, "GET", "/snapshot.json?token=", local) == 401);
    EXPECT(status_of(&r, &s, "GET", "/snapshot.json?token=s3cret", local) == 200 && strstr(r.data, "Fake GPU"));
    EXPECT(status_of(&r, &s, "GET", "/metrics", "Host: localhost\r\nAuthorization: Bearer s3cret\r\n") == 200);
    str_free(&r);
    end(&s);
}

TEST(another_site_whose_name_leads_here_is_not_answered) {
    Served s;
    Str r = {0};
    static const char *const hosts[] = {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""};
    if (!start(&s, "")) return;
    for (int i = 0; i < 4; i++) {
        char header[100];
        snprintf(header, sizeof header, "Host: %s\r\n", hosts[i]);
        EXPECT(status_of(&r, &s, "GET", "/snapshot.json", header) == 403);
    }
    EXPECT(status_of(&r, &s, "GET", "/snapshot.json", "Host: localhost:7860\r\n") == 200);
    str_free(&r);
    end(&s);
}

TEST(nobody_on_another_machine_can_connect_unless_asked_for) {
    Served s;
    Str table = {0};
    char here[40];
    if (!start(&s, "")) return;
    snprintf(here, sizeof here, " 0100007F:%04X 00000000:0000 0A", (unsigned)s.port); /* 127.0.0.1, listening */
    EXPECT(file_read("/proc/net/tcp", &table, 0, NULL) && strstr(str_text(&table), here));
    end(&s);
    if (!start(&s, "--host 0.0.0.0")) return;
    EXPECT(world_says("v", "whoever reaches this machine can look"));
    end(&s);
    str_free(&table);
}

TEST(wrong_ports_and_addresses_are_refused) {
    const char *const wrong[][2] = {{"--serve 70000", "neither a port"},
                                    {"--serve x", "neither a port"},
                                    {"--serve any --host nowhere.example", "is no address"}};
    for (int i = 0; i < 3; i++) {
        Ran r = snug_run("monitor %s", wrong[i][0]);
        EXPECT(r.code == 2 && strstr(str_text(&r.err), wrong[i][1]));
        ran_free(&r);
    }
}

TEST(charts_of_a_job_come_from_its_run_folder) {
    Served s;
    Str r = {0};
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    snug_make_job((SnugJob){1, 32, 32});
    pid_t job = world_start(
        "r", world_binary(), NULL,
        "train --model ../m --data ../rows.jsonl --out run --seq 16 --steps 1000000 --log-steps 1 --device cpu");
    EXPECT(world_says("r", "step 9/")); /* what is said may be ahead of the file by a step */
    if (start(&s, "")) {
        char path[60];
        snprintf(path, sizeof path, "/job?pid=%d", (int)job);
        EXPECT(status_of(&r, &s, "GET", path, local) == 200);
        json_t *j = json_loads(content(&r), 0, NULL), *memory = json_object_get(j, "memory");
        EXPECT(json_integer_value(json_object_get(memory, "columns")) > 10);
        EXPECT(json_array_size(json_object_get(memory, "lines")) > 3 &&
               json_array_size(json_object_get(j, "train")) >= 3);
        json_decref(j);
        end(&s);
    }
    kill(job, SIGKILL);
    world_wait(job);
    str_free(&r);
}
