/* test_arith.c - drawn problems are right, spoiled ones are wrong, and the two parts share neither phrasing nor
 * numbers. */
#include "reason/arith.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "reason/arith_int.h"
#include "tests/test.h"

enum { DRAWS = 3000 };

/* What the boxed answer says; -1: there is none, or it is not the solution's end. */
static int64_t boxed(const char *solution) {
    const char *box = strstr(solution, "\\boxed{");
    if (!box) return -1;
    char *end;
    int64_t value = strtoll(box + 7, &end, 10);
    return strcmp(end, "}.") ? -1 : value;
}

/* Sums and products from left to right, as far as they go; solutions write no others except a product's tens + ones. */
static int64_t read_side(const char **p) {
    int64_t value = strtoll(*p, (char **)p, 10);
    while (p[0][0] == ' ' && strchr("+-*/", p[0][1])) {
        char op = p[0][1];
        int64_t b = strtoll(*p + 2, (char **)p, 10);
        value = op == '+'             ? value + b
                : op == '-'           ? value - b
                : op == '*'           ? value * b
                : b && value % b == 0 ? value / b
                                      : -1;
    }
    return value;
}

/* The number of equations in a solution whose sides differ. */
static int unequal_sides(const char *solution) {
    int n = 0;
    for (const char *line = solution; (line = strstr(line, "Step ")); line++) {
        const char *p = strchr(line, ':') + 2;
        int64_t left = read_side(&p);
        while (!strncmp(p, " = ", 3)) {
            p += 3;
            n += read_side(&p) != left;
        }
        n += strncmp(p, ".\n", 2) != 0;
    }
    return n;
}

TEST(every_equation_of_a_drawn_solution_holds) {
    Arith a = {0};
    int by_steps[ARITH_STEPS_MOST + 1] = {0}, by_op[4] = {0};
    for (uint64_t key = 0; key < DRAWS; key++) {
        arith_draw(&a, key, key % 4 ? ARITH_TRAIN : ARITH_HELD_OUT);
        EXPECT(a.n_steps >= 1 && a.n_steps <= ARITH_STEPS_MOST && a.answer >= 1 && a.answer <= ARITH_VALUE_MOST);
        EXPECT(boxed(str_text(&a.solution)) == a.answer && a.step[a.n_steps - 1].result == a.answer);
        EXPECT(unequal_sides(str_text(&a.solution)) == 0);
        EXPECT(!strpbrk(str_text(&a.problem), "{}[]|") && str_ends(str_text(&a.problem), "?"));
        by_steps[a.n_steps]++;
        for (int i = 0; i < a.n_steps; i++) by_op[a.step[i].op]++;
    }
    for (int i = 1; i <= ARITH_STEPS_MOST; i++) EXPECT(by_steps[i] > DRAWS / 5);
    for (int i = 0; i < 4; i++) EXPECT(by_op[i] > DRAWS / 8);
    arith_free(&a);
}

TEST(a_key_draws_the_same_problem_again) {
    Arith a = {0}, b = {0};
    arith_draw(&b, 99, ARITH_HELD_OUT);
    for (uint64_t key = 5; key < 8; key++) {
        arith_draw(&a, key, ARITH_TRAIN);
        arith_draw(&b, key, ARITH_TRAIN);
        EXPECT_STR(str_text(&a.problem), str_text(&b.problem));
        EXPECT_STR(str_text(&a.solution), str_text(&b.solution));
        arith_draw(&b, key + 1, ARITH_TRAIN);
        EXPECT(strcmp(str_text(&a.problem), str_text(&b.problem)));
    }
    arith_free(&a);
    arith_free(&b);
}

TEST(a_spoiled_solution_has_one_mistake_and_ends_wrong) {
    Arith a = {0};
    Str wrong = {0};
    int kinds[ARITH_MISTAKES] = {0};
    for (uint64_t key = 0; key < DRAWS; key++) {
        arith_draw(&a, key, key % 2 ? ARITH_TRAIN : ARITH_HELD_OUT);
        str_clear(&wrong);
        ArithFault f = arith_spoil(&wrong, &a, key + 7);
        int64_t says = boxed(str_text(&wrong));
        EXPECT(says >= 1 && says != a.answer && f.step >= 0 && f.step < a.n_steps);
        EXPECT(unequal_sides(str_text(&wrong)) == (f.mistake == ARITH_SLIP));
        kinds[f.mistake]++;
    }
    for (int i = 0; i < ARITH_MISTAKES; i++) EXPECT(kinds[i] > DRAWS / 10);
    str_free(&wrong);
    arith_free(&a);
}

/* The next word of a phrasing, without slots and stops; NULL: none is left. */
static const char *next_word(const char **p, char *word, int room) {
    int n = 0;
    for (;; ++*p) {
        if (**p == '{') *p += 3;
        if (!**p || isalpha((unsigned char)**p)) break;
    }
    while (isalpha((unsigned char)**p) && n < room - 1) word[n++] = *(*p)++;
    word[n] = 0;
    return n ? word : NULL;
}

static bool in_training(const char *word) {
    int n;
    const Phrasing *all = arith_phrasings(&n);
    char other[32];
    for (int i = 0; i < n; i++) {
        const char *p = all[i].text;
        while (all[i].part == ARITH_TRAIN && next_word(&p, other, sizeof other))
            if (!strcmp(word, other)) return true;
    }
    return false;
}

TEST(held_out_phrasings_are_new_sentences_of_known_words) {
    int n, count[PIECES][2] = {{0}};
    const Phrasing *all = arith_phrasings(&n);
    char word[32];
    for (int i = 0; i < n; i++) {
        count[all[i].piece][all[i].part]++;
        for (int k = 0; k < i; k++) EXPECT(strcmp(all[i].text, all[k].text));
        const char *p = all[i].text;
        while (all[i].part == ARITH_HELD_OUT && next_word(&p, word, sizeof word))
            if (!EXPECT(in_training(word))) test_note("    \"%s\" of \"%s\"", word, all[i].text);
    }
    for (int i = 0; i < PIECES; i++) EXPECT(count[i][ARITH_TRAIN] >= 4 && count[i][ARITH_HELD_OUT] >= 2);
}

/* A problem's numbers, whatever their order: a sum of hashes. */
static uint64_t numbers_of(const char *problem) {
    uint64_t sum = 0;
    for (const char *p = problem; *p; p++)
        if (isdigit((unsigned char)*p)) sum += rng_mix(strtoull(p, (char **)&p, 10));
    return sum;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

TEST(no_problem_of_one_part_has_the_numbers_of_the_other) {
    Arith a = {0};
    uint64_t *seen = MEM_NEW(uint64_t, DRAWS);
    int known = 0, again = 0;
    for (uint64_t key = 0; key < 2 * DRAWS; key++) {
        bool first = key < DRAWS;
        arith_draw(&a, key, first ? ARITH_TRAIN : ARITH_HELD_OUT);
        uint64_t numbers = numbers_of(str_text(&a.problem));
        if (first) seen[key] = numbers;
        else known += bsearch(&numbers, seen, DRAWS, sizeof *seen, by_value) != NULL;
        if (key == DRAWS - 1) qsort(seen, DRAWS, sizeof *seen, by_value);
    }
    for (int i = 1; i < DRAWS; i++) again += seen[i] == seen[i - 1];
    EXPECT(known == 0 && again > DRAWS / 100); /* within a part they do meet again */
    mem_free(seen);
    arith_free(&a);
}
