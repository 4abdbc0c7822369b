/* tiny_words.c - the small tokenizers of tests/data, for the tests of this folder. */
#include "tests/data/tiny_data.c"
