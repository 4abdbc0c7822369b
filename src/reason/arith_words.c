/* arith_words.c - the words of arithmetic stories: names, things, and every phrasing of every sentence.
 *
 * Held-out phrasings are other sentences made of the same words: what is asked of a solver is to understand a new
 * sentence, not a word it never met. A test holds the table to that. */
#include "base/check.h"
#include "reason/arith_int.h"

static const char *const names[] = {
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo",
    "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor",
};
static const char *const things[] = {
    "apples",  "beads",   "books",   "cards",  "cookies", "eggs",
    "flowers", "marbles", "pencils", "shells", "stamps",  "stones",
};
static const char *const containers[] = {"bags", "baskets", "boxes", "jars", "packs", "trays"};
static const char *const people[] = {"friends", "children", "cousins", "neighbours"};

#define TRAIN ARITH_TRAIN
#define HELD ARITH_HELD_OUT

static const Phrasing phrasings[] = {
    {START_HAS, TRAIN, "{n} has {a} {t}."},
    {START_HAS, TRAIN, "{n} [starts|begins] with {a} {t}."},
    {START_HAS, TRAIN, "At first {n} has {a} {t}."},
    {START_HAS, TRAIN, "{n} [owns|keeps|holds] {a} {t}."},
    {START_HAS, TRAIN, "In the morning, {n} has {a} {t} [at home|on the table|in the room]."},
    {START_HAS, TRAIN, "There are {a} {t} on the table. All of them belong to {n}."},
    {START_HAS, TRAIN, "{n} finds {a} {t} [at home|on the table|in the room]."},
    {START_HAS, TRAIN, "There are {a} {t} that belong to {n}."},
    {START_HAS, TRAIN, "At home, {n} [counts|has] {a} {t}."},
    {START_HAS, HELD, "{a} {t} belong to {n}."},
    {START_HAS, HELD, "In the morning there are {a} {t} on the table of {n}."},
    {START_HAS, HELD, "At first {n} keeps {a} {t} in the room."},
    {START_HAS, HELD, "At home, {n} finds {a} {t} on the table."},

    {START_GROUPS, TRAIN, "{n} has {b} {c} with {a} {t} in each."},
    {START_GROUPS, TRAIN, "{n} has {b} {c}, and each of them holds {a} {t}."},
    {START_GROUPS, TRAIN, "There are {b} {c} on the table of {n}, each with {a} {t}."},
    {START_GROUPS, TRAIN, "{n} fills {b} {c} with {a} {t} each."},
    {START_GROUPS, TRAIN, "{n} [starts|begins] with {b} {c} of {a} {t} each."},
    {START_GROUPS, TRAIN, "Each of the {b} {c} of {n} holds {a} {t}."},
    {START_GROUPS, TRAIN, "{n} puts {a} {t} into each of {b} {c}."},
    {START_GROUPS, TRAIN, "At home, {n} keeps {b} {c}. In each there are {a} {t}."},
    {START_GROUPS, HELD, "{n} keeps {t} in {b} {c}, {a} in each."},
    {START_GROUPS, HELD, "There are {a} {t} in each of the {b} {c} of {n}."},
    {START_GROUPS, HELD, "{n} begins with {b} {c}, and there are {a} {t} in each of them."},

    {START_MORE, TRAIN, "{m} has {a} {t}. {n} has {b} more than {m}."},
    {START_MORE, TRAIN, "{m} [owns|has] {a} {t}, and {n} has {b} more."},
    {START_MORE, TRAIN, "{n} has {b} more {t} than {m}, who has {a}."},
    {START_MORE, TRAIN, "{m} counts {a} {t}. {n} counts {b} more than {m}."},
    {START_MORE, TRAIN, "There are {a} {t} that belong to {m}. {n} owns {b} more."},
    {START_MORE, TRAIN, "{n} [owns|counts] {b} more {t} than {m}. {m} [owns|counts] {a}."},
    {START_MORE, HELD, "{n} has {b} {t} more than {m}. {m} has {a}."},
    {START_MORE, HELD, "{m} keeps {a} {t} at home. {n} keeps {b} more than {m}."},

    {START_FEWER, TRAIN, "{m} has {a} {t}. {n} has {b} fewer than {m}."},
    {START_FEWER, TRAIN, "{m} [owns|has] {a} {t}, and {n} has {b} fewer."},
    {START_FEWER, TRAIN, "{n} has {b} fewer {t} than {m}, who has {a}."},
    {START_FEWER, TRAIN, "{m} counts {a} {t}. {n} counts {b} fewer than {m}."},
    {START_FEWER, TRAIN, "There are {a} {t} that belong to {m}. {n} owns {b} fewer."},
    {START_FEWER, TRAIN, "{n} [owns|counts] {b} fewer {t} than {m}. {m} [owns|counts] {a}."},
    {START_FEWER, HELD, "{n} has {b} {t} fewer than {m}. {m} has {a}."},
    {START_FEWER, HELD, "{m} keeps {a} {t} at home. {n} keeps {b} fewer than {m}."},

    {START_TIMES, TRAIN, "{m} has {a} {t}. {n} has {b} times as many."},
    {START_TIMES, TRAIN, "{m} [owns|has] {a} {t}, and {n} has {b} times as many as {m}."},
    {START_TIMES, TRAIN, "{n} has {b} times as many {t} as {m}, who has {a}."},
    {START_TIMES, TRAIN, "{m} counts {a} {t}. {n} counts {b} times as many."},
    {START_TIMES, TRAIN, "{n} counts {b} times as many {t} as {m}. {m} counts {a}."},
    {START_TIMES, HELD, "{n} owns {b} times as many {t} as {m}. {m} has {a}."},
    {START_TIMES, HELD, "{m} keeps {a} {t} at home. {n} keeps {b} times as many."},

    {EVENT_GETS, TRAIN, "{n} [gets|finds|buys|wins|receives] {a} more {t}."},
    {EVENT_GETS, TRAIN, "Then {n} [gets|finds|buys|wins|receives] {a} {t}."},
    {EVENT_GETS, TRAIN, "[Later|After that|Then] {m} gives {n} {a} {t}."},
    {EVENT_GETS, TRAIN, "{n} receives {a} {t} from {m}."},
    {EVENT_GETS, TRAIN, "In the evening, {n} [finds|buys|wins] another {a}."},
    {EVENT_GETS, TRAIN, "{m} brings {a} more {t} for {n}."},
    {EVENT_GETS, TRAIN, "[Later|After that], {n} adds {a} {t}."},
    {EVENT_GETS, TRAIN, "From {m}, {n} gets {a} more."},
    {EVENT_GETS, HELD, "In the evening {m} brings {n} another {a} {t}."},
    {EVENT_GETS, HELD, "After that, {n} gets {a} {t} from {m}."},
    {EVENT_GETS, HELD, "Later {n} [buys|wins|finds] another {a} {t}."},
    {EVENT_GETS, HELD, "Then {n} adds another {a}."},

    {EVENT_LOSES, TRAIN, "{n} [loses|sells|breaks|uses] {a} of them."},
    {EVENT_LOSES, TRAIN, "Then {n} [loses|sells|uses] {a} {t}."},
    {EVENT_LOSES, TRAIN, "[Later|After that|Then] {n} gives {m} {a} {t}."},
    {EVENT_LOSES, TRAIN, "{n} gives {a} {t} to {m}."},
    {EVENT_LOSES, TRAIN, "In the evening, {n} [loses|sells|uses] {a}."},
    {EVENT_LOSES, TRAIN, "{m} takes {a} {t} away from {n}."},
    {EVENT_LOSES, TRAIN, "[Later|After that], {n} gives away {a} {t}."},
    {EVENT_LOSES, TRAIN, "{a} of the {t} [break|are lost]."},
    {EVENT_LOSES, HELD, "In the evening {n} gives {a} of them to {m}."},
    {EVENT_LOSES, HELD, "After that, {n} [sells|loses] {a} of the {t}."},
    {EVENT_LOSES, HELD, "Later {m} takes away {a} of them."},
    {EVENT_LOSES, HELD, "Then {a} {t} are lost."},

    {EVENT_DOUBLES, TRAIN, "Then {n} doubles the number of {t}."},
    {EVENT_DOUBLES, TRAIN, "[Later|After that], the number of {t} doubles."},
    {EVENT_DOUBLES, TRAIN, "{n} works until there are twice as many {t}."},
    {EVENT_DOUBLES, TRAIN, "In the evening {n} has twice as many."},
    {EVENT_DOUBLES, HELD, "After that, {n} has twice as many {t}."},
    {EVENT_DOUBLES, HELD, "In the evening the number of {t} doubles."},

    {EVENT_TRIPLES, TRAIN, "Then {n} triples the number of {t}."},
    {EVENT_TRIPLES, TRAIN, "[Later|After that], the number of {t} triples."},
    {EVENT_TRIPLES, TRAIN, "{n} works until there are three times as many {t}."},
    {EVENT_TRIPLES, TRAIN, "In the evening {n} has three times as many."},
    {EVENT_TRIPLES, HELD, "After that, {n} has three times as many {t}."},
    {EVENT_TRIPLES, HELD, "In the evening the number of {t} triples."},

    {EVENT_HALVES, TRAIN, "Then {n} [loses|sells|uses] half of the {t}."},
    {EVENT_HALVES, TRAIN, "{n} gives half of them to {m}."},
    {EVENT_HALVES, TRAIN, "[Later|After that], half of the {t} are lost."},
    {EVENT_HALVES, TRAIN, "{m} takes half of them away."},
    {EVENT_HALVES, TRAIN, "In the evening, {n} gives away half of them."},
    {EVENT_HALVES, HELD, "After that, {n} gives {m} half of the {t}."},
    {EVENT_HALVES, HELD, "Then half of them are lost."},

    {EVENT_GETS_GROUPS, TRAIN, "{n} [buys|gets|finds] {b} {c} with {a} {t} in each."},
    {EVENT_GETS_GROUPS, TRAIN, "Then {n} [receives|wins] {b} {c} of {a} {t} each."},
    {EVENT_GETS_GROUPS, TRAIN, "[Later|After that], {m} gives {n} {b} {c} with {a} {t} each."},
    {EVENT_GETS_GROUPS, TRAIN, "{m} brings {b} more {c}, and each of them holds {a} {t}."},
    {EVENT_GETS_GROUPS, TRAIN, "Each of {b} {f} gives {n} {a} {t}."},
    {EVENT_GETS_GROUPS, TRAIN, "{n} gets {a} {t} from each of {b} {f}."},
    {EVENT_GETS_GROUPS, HELD, "In the evening {n} buys {b} more {c}, each with {a} {t}."},
    {EVENT_GETS_GROUPS, HELD, "After that, {n} receives {b} {c} with {a} {t} in each."},
    {EVENT_GETS_GROUPS, HELD, "Then each of {b} {f} brings {a} more {t} for {n}."},

    {EVENT_GIVES_GROUPS, TRAIN, "{n} gives {a} {t} to each of {b} {f}."},
    {EVENT_GIVES_GROUPS, TRAIN, "Then {n} gives {b} {f} {a} {t} each."},
    {EVENT_GIVES_GROUPS, TRAIN, "[Later|After that], {n} [sells|loses] {b} {c} with {a} {t} in each."},
    {EVENT_GIVES_GROUPS, TRAIN, "Each of {b} {f} takes {a} of them."},
    {EVENT_GIVES_GROUPS, TRAIN, "{n} fills {b} {c} with {a} {t} each and gives them away."},
    {EVENT_GIVES_GROUPS, TRAIN, "{b} {f} take {a} of them each."},
    {EVENT_GIVES_GROUPS, HELD, "After that, {n} gives each of {b} {f} {a} {t}."},
    {EVENT_GIVES_GROUPS, HELD, "In the evening {n} sells {b} {c} of {a} {t} each."},
    {EVENT_GIVES_GROUPS, HELD, "Then {b} {f} take {a} {t} each."},

    {ASK_NOW, TRAIN, "How many {t} does {n} have now?"},
    {ASK_NOW, TRAIN, "How many {t} does {n} have in the end?"},
    {ASK_NOW, TRAIN, "Now, how many {t} does {n} have?"},
    {ASK_NOW, TRAIN, "What is the number of {t} that {n} has now?"},
    {ASK_NOW, TRAIN, "How many does {n} have?"},
    {ASK_NOW, HELD, "In the end, how many {t} does {n} have?"},
    {ASK_NOW, HELD, "How many {t} belong to {n} now?"},
    {ASK_NOW, HELD, "What is the number of {t} that {n} has in the end?"},

    {ASK_SHARED, TRAIN, "{n} shares them equally among {b} {f}. How many {t} does each of them get?"},
    {ASK_SHARED, TRAIN, "Then {b} {f} share all the {t} equally. How many does each get?"},
    {ASK_SHARED, TRAIN, "{n} gives all of them to {b} {f}, the same number to each. How many {t} does each get?"},
    {ASK_SHARED, TRAIN, "All {t} are shared equally among {b} {f}. What is the number for each?"},
    {ASK_SHARED, HELD, "If {b} {f} share them equally, how many {t} does each of them get?"},
    {ASK_SHARED, HELD, "In the end {n} shares all the {t} equally among {b} {f}. How many does each get?"},

    {ASK_PACKED, TRAIN, "{n} packs them into {c}, {b} in each. How many {c} are filled?"},
    {ASK_PACKED, TRAIN, "Then {n} puts {b} {t} into each of some {c}. How many {c} does {n} fill?"},
    {ASK_PACKED, TRAIN, "If each of the {c} holds {b} {t}, how many {c} does {n} need?"},
    {ASK_PACKED, TRAIN, "All {t} are packed into {c} of {b}. How many {c} are there?"},
    {ASK_PACKED, HELD, "Then {n} packs all the {t} into {c} of {b} each. How many {c} does {n} need?"},
    {ASK_PACKED, HELD, "If {n} puts {b} into each, how many {c} are filled?"},

    {ASK_SOLD, TRAIN, "{n} sells all of them for {b} dollars each. How many dollars does {n} get?"},
    {ASK_SOLD, TRAIN, "Each of the {t} costs {b} dollars. How many dollars are all of them worth?"},
    {ASK_SOLD, TRAIN, "Then {n} sells all the {t} at {b} dollars each. What does {n} get for them?"},
    {ASK_SOLD, TRAIN, "If each is worth {b} dollars, how many dollars does {n} get for all the {t}?"},
    {ASK_SOLD, HELD, "In the end {n} sells them at {b} dollars each. How many dollars does {n} get?"},
    {ASK_SOLD, HELD, "If each of them costs {b} dollars, how many dollars are all the {t} worth?"},
};

const Phrasing *arith_phrasings(int *n) {
    *n = COUNT_OF(phrasings);
    return phrasings;
}

const char *const *arith_words(WordKind kind, int *n) {
    switch (kind) {
    case WORD_NAME: *n = COUNT_OF(names); return names;
    case WORD_THING: *n = COUNT_OF(things); return things;
    case WORD_CONTAINER: *n = COUNT_OF(containers); return containers;
    case WORD_PEOPLE: break;
    }
    *n = COUNT_OF(people);
    return people;
}
