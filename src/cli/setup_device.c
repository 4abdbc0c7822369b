/* setup_device.c - which device a job runs on or is planned for, what is known about it, and whether it has room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/setup.h"
#include "ir/cards.h"
#include "store/machinefile.h"

/* ---- the machine file ---- */

bool setup_machine_path(char *path, size_t size, const char *given) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (given)
        n = snprintf(path, size, "%s", given);
    else if (config && config[0])
        n = snprintf(path, size, "%s/snug/machine.json", config);
    else if (home && home[0])
        n = snprintf(path, size, "%s/.config/snug/machine.json", home);
    return n >= 0 && n < (int)size;
}

typedef struct InForce {
    MachineFile f;
    bool found;
    char path[1024];
} InForce;

/* The file in force. A wrong one that was named is refused; a wrong one that just lies there is passed over. */
static bool read_file(InForce *in, const Options *o, Err *e) {
    const char *given = opt_given(o, OPT_MACHINE) ? opt_text(o, OPT_MACHINE) : NULL;
    *in = (InForce){0};
    if (!setup_machine_path(in->path, sizeof in->path, given)) return true;
    Err why = {0};
    if (!machinefile_read(&in->f, &in->found, in->path, &why)) {
        if (given) return fail(e, why.code, "--machine: %s", why.text);
        log_warn("passed over: %s", why.text);
        machinefile_free(&in->f);
        in->found = false;
        return true;
    }
    if (given && !in->found)
        return fail(e, ERR_FAIL, "--machine %s: there is no such file. `snug doctor --write %s` makes it", given,
                    given);
    return true;
}

static bool apply_file(Backend *b, Machine *m, const Options *o, Err *e) {
    InForce in;
    bool ok = read_file(&in, o, e);
    const MachineEntry *entry = ok && in.found ? machinefile_find(&in.f, m) : NULL;
    if (entry) {
        bool same = !strcmp(entry->m.library, m->library);
        machinefile_apply(entry, m);
        if (same) b->choose(b, entry->choice, entry->n_choices);
        log_line("%s: rates measured on %s%s", in.path, m->name,
                 same ? "" : "; its product algorithms belong to another library version and are not used");
    } else if (ok && in.found) {
        log_line("%s: knows nothing about %s; `snug doctor` would add it", in.path, m->name);
    }
    machinefile_free(&in.f);
    return ok;
}

bool setup_keep_choices(Backend *b, const Machine *m, const Options *o, Err *e) {
    InForce in;
    int64_t n = b->choices(b, NULL, 0);
    if (!n) return true;
    bool ok = read_file(&in, o, e);
    MachineEntry *entry = ok && in.found ? machinefile_find(&in.f, m) : NULL;
    if (entry && !strcmp(entry->m.library, m->library)) {
        MachineChoice *list = MEM_NEW(MachineChoice, n);
        b->choices(b, list, n);
        int64_t added = machinefile_add_choices(entry, list, n);
        mem_free(list);
        if (added) ok = machinefile_write(&in.f, in.path, e);
        if (ok && added) log_line("%s: %lld product algorithms added", in.path, (long long)added);
    }
    machinefile_free(&in.f);
    return ok;
}

/* ---- the device ---- */

/* A card that is not here, with the rates that were measured where it is, if the machine file knows them. */
static bool use_card(Machine *m, const Options *o, Err *e) {
    const Card *card = card_named(opt_text(o, OPT_GPU));
    if (!card)
        return fail(e, ERR_USAGE, "--gpu %s: is not in the catalogue; see `snug plan --gpu list`",
                    opt_text(o, OPT_GPU));
    *m = card_machine(card);
    InForce in;
    bool ok = read_file(&in, o, e);
    for (int64_t i = 0; ok && in.found && i < in.f.n; i++) {
        const Machine *known = &in.f.entry[i].m;
        if (known->kind != MACHINE_CUDA || card_find(known->name, known->total_bytes[POOL_DEVICE]) != card) continue;
        machinefile_apply(&in.f.entry[i], m);
        log_line("%s: rates measured on %s", in.path, known->name);
        break;
    }
    machinefile_free(&in.f);
    return ok;
}

int setup_threads(const Options *o) {
    return opt_int(o, OPT_THREADS) ? (int)opt_int(o, OPT_THREADS) : threads_available();
}

static void machine_take_options(Machine *m, const Options *o) {
    m->tf32 = opt_flag(o, OPT_TF32);
    m->deterministic = opt_flag(o, OPT_DETERMINISTIC);
}

bool setup_backend(Backend **b, Machine *m, const Options *o, Err *e) {
    BackendOptions options = {
        .threads = (int)opt_int(o, OPT_THREADS),
        .deterministic = opt_flag(o, OPT_DETERMINISTIC),
        .tf32 = opt_flag(o, OPT_TF32),
        .offload_dir = opt_given(o, OPT_OFFLOAD_DIR) ? opt_text(o, OPT_OFFLOAD_DIR) : NULL,
        .trims = (ON_TRAIN >> o->command & 1) && opt_int(o, OPT_TRIM_EVERY),
        .ranges = (ON_TRAIN >> o->command & 1) && (opt_flag(o, OPT_NVTX) || opt_flag(o, OPT_PROFILE))};
    *b = NULL;
    if (o->command == CMD_PLAN && opt_given(o, OPT_GPU)) {
        bool known = use_card(m, o, e);
        machine_take_options(m, o);
        return known;
    }
    if (!backend_open(b, opt_text(o, OPT_DEVICE), options, e)) return false;
    *m = (Machine){0};
    (*b)->describe(*b, m);
    machine_take_options(m, o);
    if (apply_file(*b, m, o, e)) return true;
    (*b)->close(*b);
    *b = NULL;
    return false;
}

bool setup_check_free(const Ring *r, Backend *b, Err *e) {
    Machine now = {0};
    const Machine *m = &r->machine;
    bool cpu = m->kind == MACHINE_CPU;
    b->describe(b, &now);
    int64_t planned = ring_process_bytes(r),
            wants = cpu ? planned : planned - m->context_bytes; /* the context is there */
    Str why = {0}, who = {0};
    int64_t has = cpu ? setup_room(&why, m) : now.free_bytes[POOL_DEVICE];
    bool fits = has <= 0 || wants <= has;
    if (!fits && !cpu) {
        DeviceFacts facts;
        b->facts(b, &facts);
        str_addf(&why, "%s is free", units_bytes(has).s);
        backend_holders(&who, &facts);
    }
    if (!fits)
        fail(e, ERR_BUDGET,
             "%s: %s (%s bytes) are planned, %s, %s (%s bytes) are missing%s%s. Nothing was loaded. End what "
             "holds it, raise the limit, or give a --budget of %lldMiB or less and take one of the changes that "
             "`snug plan` then names",
             m->name, units_bytes(wants).s, units_count(wants).s, str_text(&why), units_bytes(wants - has).s,
             units_count(wants - has).s, who.len ? "; " : "", str_text(&who),
             (long long)((has + planned - wants) / MIB));
    str_free(&who);
    str_free(&why);
    return fits;
}
