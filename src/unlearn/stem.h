/* stem.h - Porter's stemmer of 1980 for English words, with the departures of the Natural Language Toolkit that ROUGE
 * is measured with. */
#ifndef UNLEARN_STEM_H
#define UNLEARN_STEM_H

enum { STEM_BYTES = 64 }; /* longer words are left as they are */

/* word: lower-case letters and digits; changed in place, never made longer by more than one letter. */
void stem_word(char word[STEM_BYTES]);

#endif
