/* pipeline.h - the state machine of a problem: solve, judge, improve while it is not good enough, keep the best. It
 * knows no model.
 *
 * Whoever drives it asks for the next prompt, has it answered by whatever answers, and hands the reply back:
 *
 *     while (pipeline_next(&p, &ask)) { ... pipeline_take(&p, ask.problem, &reply); }
 *
 * Any number of asks may be out at a time, one of each problem; problems do not wait for each other. What comes
 * out depends on the replies alone, not on their order among problems.
 *
 * V1 a judgement that leaves criteria out is asked for again, once; what is then still missing does not count
 * V2 of two versions the one of higher quality is kept; a tie keeps the older, a known quality beats an unknown one
 * V3 an improvement begins from the version kept so far
 * V4 the reference answer is never shown to a prompt and never changes a score: it is compared on its own */
#ifndef REASON_PIPELINE_H
#define REASON_PIPELINE_H

#include "base/str.h"
#include "reason/judge.h"
#include "reason/problems.h"

enum { ROUNDS_MOST = 16 };

typedef enum AskRole { ASK_SOLVE, ASK_JUDGE, ASK_JUDGE_AGAIN, ASK_IMPROVE, ASK_ROLES } AskRole;
const char *ask_role_name(AskRole role); /* "solve", "judge", "judge_again", "improve" */

typedef struct AskHow {
    double temperature, top_p;
    int64_t max_tokens;
} AskHow;

typedef struct PipelineSpec {
    Rubric rubric;
    int rounds;          /* of improvement, at most; ROUNDS_MOST at most */
    int64_t open;        /* concurrent problems; 0: any number */
    AskHow solve, judge; /* improving is solving again */
    uint64_t seed;
} PipelineSpec;

typedef struct Ask {
    int64_t problem; /* its number here */
    AskRole role;
    int round; /* 0: about the first solution */
    AskHow how;
    uint64_t key; /* of its random numbers: seed, place in the whole selection, role, round */
    Str text;     /* the user's message; reused from ask to ask, pipeline_ask_free at the end */
} Ask;
void pipeline_ask_free(Ask *a);

typedef struct Reply {
    const char *text; /* UTF-8 without a 0 inside; borrows */
    int64_t tokens;
    bool cut;    /* it ended by its length */
    double when; /* wall seconds */
} Reply;

typedef enum Correct { CORRECT_UNKNOWN = -1, CORRECT_NO, CORRECT_YES } Correct;

typedef struct Version { /* one solution of a problem */
    char *reasoning;     /* owns; the reply without its marks */
    char *solution;      /* owns; the final answer in it */
    char *evaluation;    /* owns; the judge's words; "" until there are some */
    Judgement judgement; /* quality NAN: not judged, or nothing was said */
    Correct correct;
    bool cut;
} Version;

typedef struct Track {      /* a problem in progress */
    const Problem *problem; /* keeps */
    int64_t place;          /* in the whole selection */
    bool begun, asked, done;
    AskRole next;
    Version *version; /* owns; the first solution, then one a round */
    int n_versions;
    int kept; /* which of them; -1: none */
    int kept_after[ROUNDS_MOST + 1];
    char *note; /* owns; why it ended before its time; NULL: it did not */
    int64_t tokens[ASK_ROLES];
    double when; /* of its last reply */
} Track;

typedef struct Pipeline {
    PipelineSpec spec;
    Track *track; /* owns */
    int64_t n, n_begun, n_done;
    int64_t first_open; /* all before it are done */
} Pipeline;

void pipeline_init(Pipeline *p, const PipelineSpec *spec, const Problems *problems); /* keeps the problems */
void pipeline_free(Pipeline *p);

/* The next prompt; false: every open problem waits for a reply, or all are done. */
bool pipeline_next(Pipeline *p, Ask *ask);
/* The reply to what that problem asked, or (a reply kept from before) would ask next. */
void pipeline_take(Pipeline *p, int64_t problem, const Reply *reply);
/* The problem ends here: it keeps what it has, and the note. */
void pipeline_end(Pipeline *p, int64_t problem, const char *note);

/* What a problem asks next, for a journal of earlier replies; false: nothing, it is done. */
bool pipeline_awaits(const Pipeline *p, int64_t problem, AskRole *role, int *round);

double track_quality(const Track *t); /* of the kept version; NAN: unknown */
bool track_good(const Track *t, const Rubric *r);

#endif
