/* peak.h - what a process took at most, as the kernel counted it, beside what was planned for it.
 *
 * On the CPU that is the kernel's high-water mark of resident memory (VmHWM), pages of the program's own file
 * included. Beside a GPU, whose driver maps far more than the process asked for, it is anonymous memory, the
 * pinned pool among it, as it stands at the end; and the device's own memory is held against its plan too. */
#ifndef CLI_PEAK_H
#define CLI_PEAK_H

#include <jansson.h>

#include "base/str.h"
#include "cli/options.h"
#include "ir/machine.h"
#include "ir/prog.h"
#include "ring/ring.h"

typedef struct Peak {
    int64_t planned_bytes; /* of the process; beside a GPU: of its memory in the host */
    int64_t bytes;         /* what the kernel counted; -1: it does not tell */
    int64_t above_bytes;   /* beyond the plan, here or on the device; 0: within it */
    int64_t budget_bytes;  /* what --budget is compared with: bytes on the CPU, the device's memory beside a GPU */
} Peak;

/* Of a command that needs no device, or of one on the CPU: process, now. */
Peak peak_of(int64_t planned_bytes);
/* Of a job: planned on its device and, beside a GPU, in the host; device: measured there (not looked at on the
 * CPU). */
Peak peak_of_job(const Machine *m, int64_t planned_bytes, int64_t host_planned_bytes, int64_t device_bytes);

/* Of `snug plan` itself, which holds a few programs like p at a time, and host_bytes of data and vocabulary. open:
 * the machine is a device that was opened, not a card that is elsewhere. --budget is not about this process. */
Peak peak_of_planning(const Machine *m, bool open, const Program *p, int64_t host_bytes);

/* "process_peak_bytes" and "above_plan_bytes" as members of an object. */
void peak_json(json_t *to, const Peak *p);
/* These behind what the ring planned and took: planned_bytes, measured_bytes of its arena, the same of the process. */
void peak_add_ring(json_t *to, const Ring *r, const Peak *p);
/* Of several rings, one after the other: the largest of each. */
typedef struct RingMost {
    int64_t planned_bytes, measured_bytes; /* of the arena */
    int64_t process_planned_bytes;
} RingMost;
void peak_note_ring(RingMost *most, const Ring *r);
Peak peak_add_most(json_t *to, const RingMost *most); /* as members, and what the process took beside them */
/* These and "planner_planned_bytes", for `snug plan`: what the command itself was to take. */
void peak_add_planning(json_t *to, const Peak *p);

/* The end of a command, when all it makes is made: above the plan is said to the person, above a --budget that was
 * given is refused (ERR_FAIL; nothing is lost by it). */
bool peak_settle(const Peak *p, const Options *o, Err *e);

/* The same for a command without a device, and with --json its last line: process_planned_bytes and the two above
 * beside what `result` (taken) says. */
bool peak_finish(json_t *result, int64_t planned_bytes, const Options *o, Err *e);

#endif
