/* draw_int.h - the words of the drawn sentences, a table a language; nobody else includes it. */
#ifndef AMR_DRAW_INT_H
#define AMR_DRAW_INT_H

#include <stdbool.h>

#include "amr/draw.h"

typedef struct DrawNoun {
    const char *one, *many; /* "child", "children"; with a classifier where the language has one */
    const char *concept;
    const char *owner; /* "his": what belongs to it; NULL: nothing does, it cannot act */
} DrawNoun;

typedef struct DrawVerb {
    const char *base, *third, *past; /* "see", "sees", "saw" */
    const char *concept;
} DrawVerb;

typedef struct DrawName {
    const char *text;
    const char *owner; /* of a person; NULL: a city */
} DrawName;

typedef struct DrawWord {
    const char *text, *concept;
} DrawWord;

typedef struct DrawWords {
    bool inflects;                         /* English: articles, endings, "does not"; adjectives before the noun */
    const char *agent, *theme, *recipient; /* roles */
    const char *person, *city, *name;      /* concepts of named things */
    const DrawNoun *being, *thing;
    const DrawVerb *act, *see, *give, *want; /* without object, with one, with a recipient, with another verb */
    const DrawName *people, *cities;
    const DrawWord *adjective, *time;
    const char *const *number; /* of 2 .. 9 */
    int n_beings, n_things, n_acts, n_sees, n_gives, n_wants, n_people, n_cities, n_adjectives, n_times;
    const char *and_word, *and_concept, *to, *in, *of_own, *not_word, *who, *recipient_word;
} DrawWords;

const DrawWords *draw_words(AmrLanguage language);

#endif
