/* test_technique.c - the rows of the table: what is switched on is named, said as flags, and taken back. */
#include "tests/test.h"
#include "train/search.h"

static JobSpec job(bool lora) {
    JobSpec s = {.train = true,
                 .lora = lora,
                 .m.activations = FMT_BF16,
                 .weights = FMT_BF16,
                 .gradients = FMT_BF16,
                 .moments = MOMENTS_BF16,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f},
                 .seq = 8192,
                 .micro_batch = 2,
                 .accum = 4};
    EXPECT(config_from_preset(&s.m.config, "qwen2.5-0.5b"));
    s.m.config.layers = 4;
    if (lora) s.m.adapter = (LoraSpec){.rank = 32, .alpha = 64, .targets = 127, .format = FMT_BF16};
    return s;
}

static const char *layout(const JobSpec *s) {
    static Str text;
    str_clear(&text);
    technique_layout_flags(&text, s);
    return str_text(&text);
}

TEST(a_layout_is_said_as_flags) {
    JobSpec s = job(false);
    EXPECT_STR(layout(&s), "--micro-batch 2 --accum 4 --recompute none --offload none");
    s.recompute[0] = s.recompute[1] = RECOMPUTE_BLOCK;
    s.recompute[2] = s.recompute[3] = RECOMPUTE_NORM;
    s.m.offload.layers[OFFLOAD_MOMENTS] = 4;
    s.m.offload.layers[OFFLOAD_WEIGHTS] = 3, s.m.offload.on_disk[OFFLOAD_WEIGHTS] = 1;
    s.head_chunk = 128, s.ffn_chunks = 8;
    s.attend_asked = ATTEND_FAST;
    EXPECT_STR(
        layout(&s),
        "--micro-batch 2 --accum 4 --recompute block:0-1,norm:2-3 --offload weights=2,weights=disk:1,moments "
        "--head-chunk 128 --ffn-chunks 8 --attention own");
}

/* Whatever is taken, undoing every row gives the job back. */
TEST(what_is_taken_can_be_undone) {
    for (int lora = 0; lora < 2; lora++) {
        JobSpec asked = job(lora), now = asked;
        for (int l = 0; l < 4; l++) now.recompute[l] = asked.recompute[l] = RECOMPUTE_NONE;
        int taken = 0;
        for (int i = 0; i < technique_count; i++)
            while (technique_table[i].take && taken < 64 &&
                   technique_table[i].take(&technique_table[i], &now, MACHINE_CUDA))
                taken++;
        EXPECT(taken > 6);
        now.m.offload.layers[OFFLOAD_GRADIENTS] = 3;
        int on = 0;
        for (int i = 0; i < technique_count; i++) {
            const Technique *t = &technique_table[i];
            Str name = {0};
            if (!t->is_on(t, &now, &asked)) continue;
            on++;
            t->describe(t, &name, &now, &asked);
            EXPECT(name.len > 3);
            str_free(&name);
            t->undo(t, &now, &asked);
            EXPECT(!t->is_on(t, &now, &asked));
        }
        EXPECT(on >= 5 && !memcmp(&now, &asked, sizeof now));
    }
}

/* 8-bit moments before int8, int8 before its head, that before nf4, then rank and length. */
TEST(the_mathematics_are_given_up_in_order_of_damage) {
    static const char *const steps[] = {
        "--moments 8bit", "--moments 8bit --quantize int8", "--moments 8bit --quantize int8 --quantize-head int8",
        "--moments 8bit --quantize-head int8 --quantize nf4",
        "--moments 8bit --quantize-head int8 --quantize nf4 --lora-rank 16 --lora-alpha 32"};
    JobSpec asked = job(true), now = asked;
    for (int i = 0; i < COUNT_OF(steps); i++) {
        Str flags = {0};
        EXPECT(technique_take(&now, ALLOW_ALL, MACHINE_CUDA));
        technique_changed_flags(&flags, &now, &asked, true);
        EXPECT_STR(str_text(&flags), steps[i]);
        str_free(&flags);
    }
    now = asked = job(false);
    EXPECT(technique_take(&now, ALLOW_SEQ, MACHINE_CUDA) && now.seq == asked.seq / 2 && now.moments == asked.moments);
    while (technique_take(&now, ALLOW_SEQ, MACHINE_CUDA)) continue;
    EXPECT(now.seq == 128);
}

TEST(a_shortage_forgets_the_layout_and_keeps_the_mathematics) {
    JobSpec asked = job(true), now = asked;
    now.moments = MOMENTS_8BIT;
    now.micro_batch = 1, now.accum = 8, now.head_chunk = 128, now.m.offload.layers[OFFLOAD_WEIGHTS] = 2;
    for (int l = 0; l < 4; l++) now.recompute[l] = RECOMPUTE_BLOCK;
    technique_forget(&now, &asked);
    EXPECT(now.moments == MOMENTS_8BIT);
    now.moments = asked.moments;
    EXPECT(!memcmp(&now, &asked, sizeof now));
}

/* Each saving is the same job planned without that one technique. */
TEST(savings_are_plans_without_one_technique) {
    Err e = {0};
    Machine m = machine_generic_cpu(2);
    JobSpec s = job(false), plain;
    s.seq = 512;
    for (int l = 0; l < 4; l++) s.recompute[l] = RECOMPUTE_BLOCK;
    s.moments = MOMENTS_8BIT;
    technique_plain(&plain, &s, 8, MACHINE_CPU);
    Job *j = MEM_NEW(Job, 1);
    Ring r, without;
    Saving saving[JOB_SAVINGS];
    EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e));
    int n = job_savings(saving, j, &plain, NULL);
    EXPECT(n == 3); /* micro-batch, recompute, moments */
    for (int i = 0; i < n; i++)
        EXPECT(saving[i].device_bytes > 0 && saving[i].maths == (strstr(saving[i].name, "8 bit") != NULL));
    int64_t now = ring_process_bytes(&r);
    ring_close(&r);
    JobSpec kept = s;
    for (int l = 0; l < 4; l++) kept.recompute[l] = RECOMPUTE_NONE;
    EXPECT_OK(job_plan(j, &without, &kept, &m, NULL, &e));
    for (int i = 0; i < n; i++)
        if (strstr(saving[i].name, "recompute")) EXPECT(saving[i].device_bytes == ring_process_bytes(&without) - now);
    ring_close(&without);
    mem_free(j);
}

/* What is offered when a job does not fit does fit. */
TEST(every_change_that_is_offered_fits) {
    Err e = {0};
    Machine m = machine_generic_cpu(2);
    JobSpec s = job(false);
    s.seq = 512, s.micro_batch = 8, s.accum = 1;
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e));
    int64_t need = ring_process_bytes(&r), budget = need * 2 / 3;
    Change change[JOB_CHANGES];
    int n = job_changes(j, NULL, budget, change);
    EXPECT(n > 0);
    for (int i = 0; i < n; i++) {
        EXPECT(need - change[i].saves_bytes <= budget && change[i].flags[0] == '-');
        if (i) EXPECT(change[i - 1].maths <= change[i].maths); /* what keeps the mathematics first */
    }
    n = job_changes(j, NULL, 0, change);
    EXPECT(n > 2);
    ring_close(&r);
    mem_free(j);
}
