/* jobs.c - the folder of status files: in memory, where replacing one costs microseconds (a disk takes
 * milliseconds). It is not below XDG_RUNTIME_DIR, which is taken away when a person logs out, though what they
 * started with nohup runs on. */
#include "cli/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

void jobs_folder(char to[JOBS_PATH]) {
    const char *given = getenv("SNUG_JOBS");
    if (given && *given)
        snprintf(to, JOBS_PATH, "%s", given);
    else
        snprintf(to, JOBS_PATH, "%s/snug-%u", file_is_dir("/dev/shm") ? "/dev/shm" : "/tmp", (unsigned)geteuid());
}

void jobs_announce(JobStatus *s, const Options *o, const Ring *r, const char *unit, int64_t total) {
    char folder[JOBS_PATH], here[JOBS_PATH] = "";
    while (o->within) o = o->within;
    const char *out = opt_text(o, OPT_OUT), *name = opt_text(o, OPT_RUN_NAME);
    status_end(s);
    status_init(s);
    if (!name) name = file_last_name(out ? out : opt_text(o, OPT_MODEL));
    bool below = out && out[0] != '/' && getcwd(here, sizeof here);
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->command, sizeof s->command, "%s", command_rows[o->command].name);
    snprintf(s->unit, sizeof s->unit, "%s", unit);
    snprintf(s->out, sizeof s->out, "%s%s%s", below ? here : "", below ? "/" : "", out ? out : "");
    snprintf(s->device, sizeof s->device, "%.63s", r->machine.name);
    snprintf(s->bus_id, sizeof s->bus_id, "%s", r->machine.bus_id);
    snprintf(s->phase, sizeof s->phase, "loading");
    s->planned_bytes = ring_process_bytes(r);
    s->total_steps = total;
    jobs_folder(folder);
    status_begin(s, folder);
}
