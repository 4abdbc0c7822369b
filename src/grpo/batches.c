/* batches.c - the cutting of generation batches, and the nearest sizes that can be cut. */
#include "grpo/batches.h"

#include "base/rng.h"
#include "base/str.h"

enum { KEY_PROMPTS = 0x70726f6d, KEY_ORDER = 0x6f726465 }; /* names of the draws, folded into the seed */
enum { MOST = 1 << 20 };                                   /* of any one size */

/* ---- what can be cut ---- */

int64_t batches_common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The multiples of `of` next to n, below (where there is one) and above. */
static void add_multiples(Str *out, const char *option, int64_t n, int64_t of) {
    int64_t below = n / of * of, above = below + of;
    if (below)
        str_addf(out, "%s %lld or %lld", option, (long long)below, (long long)above);
    else
        str_addf(out, "%s %lld", option, (long long)above);
}

/* The divisors of n next to g, from 2 on. */
static void add_divisors(Str *out, const char *option, int64_t g, int64_t n) {
    int64_t below = g - 1, above = g + 1;
    while (below > 1 && n % below) below--;
    while (above <= n && n % above) above++;
    if (below < 2 && above > n) return;
    str_addf(out, "%s%s ", out->len ? ", " : "", option);
    if (below > 1) str_addf(out, "%lld", (long long)below);
    if (above <= n) str_addf(out, "%s%lld", below > 1 ? " or " : "", (long long)above);
}

static bool refuse_group(const BatchSpec *s, Err *e) {
    Str hint = {0};
    bool by_accum = s->steps == s->accum;
    int64_t all = s->batch * s->steps;
    add_multiples(&hint, "--batch-size", s->batch, s->group / batches_common_divisor(s->group, s->steps));
    str_add(&hint, ", ");
    add_multiples(&hint, by_accum ? "--accum" : "--steps-per-generation", s->steps,
                  s->group / batches_common_divisor(s->group, s->batch));
    add_divisors(&hint, "--num-generations", s->group, all);
    fail(e, ERR_USAGE,
         "%lld completions (--batch-size %lld x %s %lld) are no whole groups of %lld (--num-generations): every prompt "
         "is answered that many times, and --batch-size counts completions. Nearest that work: %s",
         (long long)all, (long long)s->batch, by_accum ? "--accum" : "--steps-per-generation", (long long)s->steps,
         (long long)s->group, str_text(&hint));
    str_free(&hint);
    return false;
}

static bool ends_with_updates(const BatchSpec *s, int64_t steps) {
    return steps % s->accum == 0 || (s->accum % steps == 0 && s->iterations == 1);
}

/* The numbers of steps next to what was asked for that all rules allow. */
static void add_steps(Str *out, const BatchSpec *s) {
    int64_t below = s->steps - 1, above = s->steps + 1;
    while (below > 0 && (!ends_with_updates(s, below) || s->batch * below % s->group)) below--;
    while (above <= MOST && (!ends_with_updates(s, above) || s->batch * above % s->group)) above++;
    if (below > 0) str_addf(out, " %lld", (long long)below);
    if (above <= MOST) str_addf(out, "%s %lld", below > 0 ? " or" : "", (long long)above);
    if (!out->len) str_addf(out, " a multiple of %lld", (long long)s->accum);
}

static bool refuse_steps(const BatchSpec *s, Err *e) {
    Str hint = {0};
    add_steps(&hint, s);
    fail(e, ERR_USAGE,
         "a generation batch of %lld steps (--steps-per-generation), trained %lld times (--num-iterations), would end "
         "inside an update of %lld (--accum). Nearest that work: --steps-per-generation%s",
         (long long)s->steps, (long long)s->iterations, (long long)s->accum, str_text(&hint));
    str_free(&hint);
    return false;
}

static bool in_range(int64_t n, int64_t least, const char *option, Err *e) {
    if (n >= least && n <= MOST) return true;
    return fail(e, ERR_USAGE, "%s %lld: %lld to %d is expected", option, (long long)n, (long long)least, MOST);
}

bool batches_make(Batches *b, const BatchSpec *spec, Err *e) {
    BatchSpec s = *spec;
    if (!s.steps) s.steps = s.accum;
    if (!s.iterations) s.iterations = 1;
    if (s.group == 1)
        return fail(
            e, ERR_USAGE,
            "--num-generations 1: an advantage compares the answers to one prompt with each other. It takes 2 or more");
    if (!in_range(s.batch, 1, "--batch-size", e) || !in_range(s.accum, 1, "--accum", e) ||
        !in_range(s.group, 2, "--num-generations", e) || !in_range(s.steps, 1, "--steps-per-generation", e) ||
        !in_range(s.iterations, 1, "--num-iterations", e))
        return false;
    if (s.batch * s.steps % s.group) return refuse_group(&s, e);
    bool whole = s.steps % s.accum == 0;
    if (!ends_with_updates(&s, s.steps)) return refuse_steps(&s, e);
    *b = (Batches){.spec = s,
                   .completions = s.batch * s.steps,
                   .prompts = s.batch * s.steps / s.group,
                   .generations = whole ? 1 : s.accum / s.steps,
                   .updates = whole ? s.iterations * (s.steps / s.accum) : 1};
    b->needs_old_logps = b->updates > 1;
    return true;
}

/* ---- prompts ---- */

int64_t batches_generations_per_epoch(const Batches *b, int64_t items) {
    return items / b->prompts;
}

bool batches_check_prompts(const Batches *b, int64_t items, Err *e) {
    if (items >= b->prompts) return true;
    int64_t batch = items * b->spec.group / b->spec.steps;
    while (batch > 0 && batch * b->spec.steps % b->spec.group) batch--;
    fail(e, ERR_USAGE,
         "%lld prompts do not fill a generation batch, which takes %lld (%lld completions, %lld of each)",
         (long long)items, (long long)b->prompts, (long long)b->completions, (long long)b->spec.group);
    if (batch > 0 && e) {
        Err whole = *e;
        fail(e, ERR_USAGE, "%s. It works with --batch-size %lld", whole.text, (long long)batch);
    }
    return false;
}

int64_t batches_rollouts(const Batches *b, int64_t items, int64_t epochs) {
    return batches_generations_per_epoch(b, items) * epochs / b->generations;
}

void batches_prompts(int64_t *item, int64_t *scratch, const Batches *b, int64_t items, int64_t generation,
                     bool shuffle, uint64_t seed) {
    int64_t each = batches_generations_per_epoch(b, items);
    CHECK(each > 0 && generation >= 0);
    int64_t epoch = generation / each, first = generation % each * b->prompts;
    if (shuffle) rng_permute(rng_fold(rng_fold(seed, KEY_PROMPTS), (uint64_t)epoch), scratch, items);
    for (int64_t i = 0; i < b->prompts; i++) item[i] = shuffle ? scratch[first + i] : first + i;
}

/* ---- completions ---- */

void batches_order(int64_t *order, const Batches *b, int64_t generation, uint64_t seed) {
    rng_permute(rng_fold(rng_fold(seed, KEY_ORDER), (uint64_t)generation), order, b->completions);
}

BatchPlace batches_place(const Batches *b, int64_t update, int64_t micro) {
    CHECK(update >= 0 && update < b->updates && micro >= 0 && micro < b->spec.accum);
    int64_t step = update * b->spec.accum + micro; /* of the rollout */
    int64_t steps = b->spec.steps, slice = step % steps;
    if (b->generations > 1) return (BatchPlace){.generation = step / steps, .first = slice * b->spec.batch};
    return (BatchPlace){.iteration = step / steps, .first = slice * b->spec.batch};
}
