/* test_dataset.c - every kind of row token by token, cutting, packing, splitting, order, and bad files. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* Opens text as data.jsonl and expects its first rows to print as given. */
static void expect_rows(const char *text, const DataOptions *o, int n, const char *const *want) {
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("data.jsonl", text), o, &e));
    if (!d) return;
    EXPECT(dataset_rows(d) == n);
    for (int i = 0; i < n && i < dataset_rows(d); i++) EXPECT_STR(tiny_row(d, i), want[i]);
    dataset_close(d);
}

static void expect_row(const char *text, const DataOptions *o, const char *want) { expect_rows(text, o, 1, &want); }

static void expect_kind(const char *text, const DataOptions *o, DataKind kind, const char *kind_text) {
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("data.jsonl", text), o, &e));
    if (!d) return;
    EXPECT(dataset_report(d)->kind == kind);
    EXPECT_STR(dataset_report(d)->kind_text, kind_text);
    dataset_close(d);
}

/* ---- kinds ---- */

TEST(dataset_ids_are_taken_as_they_are) {
    DataOptions o = tiny_options(NULL, 6);
    expect_row("{\"ids\": [97, 98, 99]}", &o, "abc___|bc.");
    expect_row("{\"input_ids\": [97, 98, 99, 259]}", &o, "abc<259>__|bc<259>.");
    expect_row("{\"ids\": [97, 98, 99, 100], \"labels\": [-100, -1, 99, 100]}", &o, "abcd__|.cd.");
    expect_row("{\"ids\": [97, 98, 99, 100], \"labels\": [97, -100, 99, -100]}", &o, "abcd__|.c..");
    expect_row("{\"ids\": [97, 98, 0, 0], \"attention_mask\": [1, 1, 0, 0]}", &o, "ab____|b.");
    expect_kind("{\"ids\": [97, 98]}", &o, DATA_IDS, "token ids (field: ids)");
    expect_kind("{\"input_ids\": [97, 98], \"labels\": [97, 98]}", &o, DATA_IDS, "token ids (fields: input_ids, labels)");
}

TEST(dataset_prompt_and_answer_are_joined) {
    Tokenizer *t = tiny_tokenizer(false), *bos = tiny_tokenizer(true);
    DataOptions o = tiny_options(t, 8), b = tiny_options(bos, 8);
    expect_row("{\"prompt\": \"Q:\", \"completion\": \" no\"}", &o, "Q: no<259>__|. no<259>.");
    expect_row("{\"prompt\": \"Q:\", \"completion\": \" no\"}", &b, "<258>Q: no<259>_|.. no<259>.");
    expect_row("{\"prompt\": \"\", \"completion\": \"no\"}", &o, "no<259>_____|o<259>.");
    expect_row("{\"prompt\": \"\", \"completion\": \"no\"}", &b, "<258>no<259>____|no<259>.");
    expect_row("{\"prompt\": \"Q\", \"completion\": \"A</s>\"}", &o, "QA<259>_____|A<259>."); /* one end is enough */
    o.eos_id = -1;
    expect_row("{\"prompt\": \"Q\", \"completion\": \"A\"}", &o, "QA______|A.");
    tokenizer_close(t);
    tokenizer_close(bos);
}

TEST(dataset_tells_pairs_apart) {
    static const char *const pairs[][2] = {{"prompt", "completion"}, {"prompt", "response"}, {"prompt", "answer"},
                                           {"question", "answer"},   {"query", "response"},  {"problem", "solution"},
                                           {"input", "output"},      {"source", "target"}};
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    for (int i = 0; i < COUNT_OF(pairs); i++) {
        char text[100], kind[100];
        snprintf(text, sizeof text, "{\"id\": 7, \"%s\": \"Q\", \"%s\": \"A\"}", pairs[i][0], pairs[i][1]);
        snprintf(kind, sizeof kind, "prompt and answer (fields: %s, %s), joined as they are", pairs[i][0], pairs[i][1]);
        expect_row(text, &o, "QA<259>_|A<259>.");
        expect_kind(text, &o, DATA_PROMPT, kind);
    }
    o.answer_field = "gold";
    expect_row("{\"question\": \"Q\", \"answer\": \"no\", \"gold\": \"A\"}", &o, "QA<259>_|A<259>.");
    tokenizer_close(t);
}

TEST(dataset_alpaca_has_a_plain_wording) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 48);
    expect_row("{\"instruction\": \"Add\", \"input\": \"1 2\", \"output\": \"3\"}", &o,
               "Instruction:\\nAdd\\n\\nInput:\\n1 2\\n\\nAnswer:\\n3<259>________|"
               ".....................................3<259>.");
    expect_row("{\"instruction\": \"Go\", \"input\": \"\", \"output\": \"ok\", \"text\": \"unused\"}", &o,
               "Instruction:\\nGo\\n\\nAnswer:\\nok<259>____________________|........................ok<259>.");
    expect_kind("{\"instruction\": \"Go\", \"context\": \"x\", \"response\": \"ok\"}", &o, DATA_ALPACA,
                "Alpaca (fields: instruction, response), in a plain wording");
    tokenizer_close(t);
}

TEST(dataset_text_is_scored_whole_and_packed) {
    Tokenizer *t = tiny_tokenizer(false), *bos = tiny_tokenizer(true);
    DataOptions o = tiny_options(t, 8), b = tiny_options(bos, 8);
    expect_row("{\"text\": \"abc\"}\n\n{\"text\": \"de\"}\n", &o, "abc<259>de<259>_|bc<259>.e<259>.|0000444");
    const char *pieces[] = {"abcdefgh|bcdefgh.", "ijkl<259>mn<259>|jkl<259>.n<259>.|00000555"};
    expect_rows("{\"text\": \"abcdefghijkl\"}\n{\"text\": \"mn\"}", &o, 2, pieces); /* cut, every token kept */
    expect_row("{\"text\": \"ab\"}", &b, "<258>ab<259>____|ab<259>.");
    o.pack = PACK_OFF;
    const char *cut[] = {"abcdefgh|bcdefgh.", "mn<259>_____|n<259>."};
    expect_rows("{\"text\": \"abcdefghijkl\"}\n{\"text\": \"mn\"}", &o, 2, cut);
    tokenizer_close(t);
    tokenizer_close(bos);
}

TEST(dataset_reads_other_files) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    const char *two[] = {"abc<259>____|bc<259>.", "\\n\\n<259>_____|\\n<259>."};
    o.pack = PACK_OFF;
    expect_rows("\xef\xbb\xbf[{\"text\": \"abc\"},\n {\"text\":\n\"\\n\\n\"}\n]\n", &o, 2, two);
    expect_rows("\xef\xbb\xbf\r\n{\"text\": \"abc\"}\r\n \t\r\n{\"text\": \"\\n\\n\"}", &o, 2, two);
    expect_row("{\"text\": \"a\\u0000b\"}", &o, "a<0>b<259>____|<0>b<259>.");
    Err e;
    Dataset *d = NULL;
    o.pack = PACK_AUTO;
    EXPECT_OK(dataset_open(&d, tiny_file("story.txt", "\xef\xbb\xbfOne.\n\nTwo.\n"), &o, &e));
    if (d) {
        EXPECT(dataset_rows(d) == 2 && dataset_report(d)->samples == 1 && dataset_report(d)->longest == 12);
        EXPECT_STR(tiny_row(d, 0), "One.\\n\\nTw|ne.\\n\\nTw.");
        EXPECT_STR(tiny_row(d, 1), "o.\\n<259>____|.\\n<259>.");
        EXPECT_STR(dataset_report(d)->kind_text, "plain text (one document)");
    }
    dataset_close(d);
    tokenizer_close(t);
}

TEST(dataset_makes_prompts_from_fields) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 16);
    o.prompt_template = "{{{a}}}: {n},{ok}=";
    expect_row("{\"a\": \"x\", \"n\": 12, \"ok\": true, \"output\": \"y\"}", &o,
               "{x}: 12,true=y<259>_|............y<259>.");
    o.prompt_template = "";
    o.answer_template = "{a}-{b}";
    expect_row("{\"a\": \"x\", \"b\": [1, 2]}", &o, "x-[1, 2]<259>_______|-[1, 2]<259>.");
    expect_kind("{\"a\": \"x\", \"b\": 1}", &o, DATA_FIELDS,
                "prompt and answer made by templates from the row's fields, joined as they are");
    o = tiny_options(t, 16);
    o.prompt_template = "{src}=";
    o.answer_field = "dst";
    expect_row("{\"src\": \"ab\", \"dst\": \"cd\", \"answer\": \"no\"}", &o, "ab=cd<259>__________|..cd<259>.");
    tokenizer_close(t);
}

/* ---- conversations ---- */

#define TURN(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define USER "<256>user\\n"
#define BOT "<256>assistant\\n"
#define END "<257>\\n"

/* Dots for the labels in front of an answer: as many as there are tokens, less the one that predicts it. */
static const char *dots(int n) {
    static char text[4][200];
    static int next;
    char *s = text[next++ % 4];
    memset(s, '.', (size_t)n);
    s[n] = 0;
    return s;
}

TEST(dataset_messages_score_the_answers) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    char want[600];
    DataOptions o = tiny_options(t, 64);
    o.chat = chat;
    /* <256>user\nhi<257>\n is 10 tokens, <256>assistant\n 11; the line end behind the answer is not scored */
    const char *one = "{\"messages\": [" TURN("user", "hi") ", " TURN("assistant", "yo") "]}";
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END "%s|%syo<257>..", "_______________________________________",
             dots(20));
    expect_row(one, &o, want);
    /* two answers, and a question that nobody answers */
    const char *two = "{\"messages\": [" TURN("user", "hi") "," TURN("assistant", "yo") "," TURN("user", "k") ","
                      TURN("assistant", "n") "," TURN("user", "?") "]}";
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END USER "k" END BOT "n" END "________________|%syo<257>%sn<257>..",
             dots(20), dots(21));
    expect_row(two, &o, want);
    o.score = SCORE_LAST;
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END USER "k" END BOT "n" END "________________|%sn<257>..", dots(44));
    expect_row(two, &o, want);
    expect_kind(two, &o, DATA_MESSAGES, "messages (field: messages), rendered by the model's chat template");
    template_free(chat);
    tokenizer_close(t);
}

TEST(dataset_sharegpt_is_messages) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 80);
    o.chat = chat;
    Err e;
    Dataset *a = NULL, *b = NULL;
    EXPECT_OK(dataset_open(&a, tiny_file("a.jsonl", "{\"system\": \"S\", \"conversations\": [{\"from\": \"human\", "
                                                    "\"value\": \"hi\"}, {\"from\": \"gpt\", \"value\": \"yo\"}]}"), &o, &e));
    EXPECT_OK(dataset_open(&b, tiny_file("b.jsonl", "{\"messages\": [" TURN("system", "S") "," TURN("user", "hi") ","
                                                    TURN("assistant", "yo") "]}"), &o, &e));
    if (a && b) {
        EXPECT(dataset_fingerprint(a) == dataset_fingerprint(b));
        EXPECT(dataset_report(a)->kind == DATA_SHAREGPT && dataset_report(a)->scored_tokens == 3);
        EXPECT(!strncmp(tiny_row(a, 0), "<256>system\\nS<257>\\n" USER "hi", 30));
    }
    dataset_close(a);
    dataset_close(b);
    template_free(chat);
    tokenizer_close(t);
}

TEST(dataset_completion_of_messages_is_scored_alone) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 48);
    o.chat = chat;
    char want[300];
    snprintf(want, sizeof want, USER "a" END BOT "b" END USER "c" END BOT "d" END "__|%sd<257>..", dots(42));
    expect_row("{\"prompt\": [" TURN("user", "a") "," TURN("assistant", "b") "," TURN("user", "c") "], \"completion\": ["
               TURN("assistant", "d") "]}", &o, want);
    tokenizer_close(t);
    template_free(chat);
}

TEST(dataset_pairs_go_through_the_template_when_asked) {
    Tokenizer *t = tiny_tokenizer(true); /* the template writes what it wants in front: no BOS is added */
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 28);
    o.chat = chat;
    o.template_mode = TEMPLATE_CHAT;
    char want[300];
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END "___|%syo<257>..", dots(20));
    expect_row("{\"question\": \"hi\", \"answer\": \"yo\"}", &o, want);
    snprintf(want, sizeof want, USER "h\\n\\ni" END BOT "y" END "__|%sy<257>..", dots(22));
    expect_row("{\"instruction\": \"h\", \"input\": \"i\", \"output\": \"y\"}", &o, want);
    expect_kind("{\"question\": \"hi\", \"answer\": \"yo\"}", &o, DATA_PROMPT,
                "prompt and answer (fields: question, answer), rendered by the model's chat template");
    template_free(chat);
    tokenizer_close(t);
}

TEST(dataset_template_without_an_end_mark_scores_all_of_the_answer) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
                                   "{% if add_generation_prompt %}a:{% endif %}");
    DataOptions o = tiny_options(t, 24);
    o.chat = chat;
    expect_row("{\"messages\": [" TURN("user", "q") "," TURN("assistant", "r") "," TURN("user", "s") ","
               TURN("assistant", "t") "]}", &o, "u:q\\na:r\\nu:s\\na:t\\n________|.....r\\n......t\\n.");
    template_free(chat);
    tokenizer_close(t);
}

/* Two habits of templates of thinking models: an earlier answer loses its thought, and the question for an answer
 * opens a thought that the finished answer does not show. */
TEST(dataset_template_that_changes_earlier_answers) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(
        "{% for m in messages %}{% if m.role == 'user' %}<s>{{ m.content }}{% else %}<|im_start|>"
        "{{ m.content if loop.last else m.content.split('/')[-1] }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|><think>\n{% endif %}");
    DataOptions o = tiny_options(t, 16);
    o.chat = chat;
    Err e;
    Dataset *d = NULL;
    const char *text = "{\"messages\": [" TURN("user", "q") "," TURN("assistant", "x/r") "," TURN("user", "s") ","
                       TURN("assistant", "<y/t") "]}\n"
                       "{\"messages\": [" TURN("user", "q") "," TURN("assistant", "r") "]}\n";
    EXPECT_OK(dataset_open(&d, tiny_file("data.jsonl", text), &o, &e));
    if (d) {
        EXPECT_STR(tiny_row(d, 0), "<258>q<256>r<259><258>s<256><y/t<259>___|.......<y/t<259>.");
        EXPECT_STR(tiny_row(d, 1), "<258>q<256>r<259>___________|..r<259>.");
        EXPECT(dataset_report(d)->last_only == 1);
        Str s = {0};
        dataset_report_text(&s, d);
        EXPECT(strstr(s.data, "in 1 conversations the chat template changes earlier answers"));
        str_free(&s);
    }
    dataset_close(d);
    template_free(chat);
    tokenizer_close(t);
}

/* Text inside a text gets no space of its own from a tokenizer that puts one before every text. */
TEST(dataset_joins_without_a_space_of_its_own) {
    Tokenizer *t = tiny_spaced_tokenizer();
    DataOptions o = tiny_options(t, 8);
    o.vocab = 300;
    o.eos_id = 2;
    /* _a b | a c: 286 259 261 then 286 259 262, and without a blank: 260 */
    expect_row("{\"prompt\": \"a b\", \"completion\": \" a c\"}", &o,
               "<286><259><261><286><259><262><2>_|..<286><259><262><2>.");
    expect_row("{\"prompt\": \"a b\", \"completion\": \"a\"}", &o, "<286><259><261><260><2>___|..<260><2>.");
    expect_row("{\"prompt\": \"\", \"completion\": \"a\"}", &o, "<286><2>______|<2>.");
    tokenizer_close(t);
}

/* ---- cutting ---- */

TEST(dataset_cutting_keeps_prompt_and_end) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 6);
    const char *text = "{\"prompt\": \"QQ\", \"completion\": \"abc\"}\n"       /* fits exactly */
                       "{\"prompt\": \"QQ\", \"completion\": \"abcd\"}\n"      /* one too many */
                       "{\"prompt\": \"QQQQ\", \"completion\": \"abcdefg\"}\n" /* room for one letter */
                       "{\"prompt\": \"QQQQQ\", \"completion\": \"a\"}\n"      /* room for the end alone: dropped */
                       "{\"prompt\": \"QQQQQQQ\", \"completion\": \"a\"}\n"    /* no room */
                       "{\"prompt\": \"Q\", \"completion\": \"\"}\n";          /* no answer */
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("data.jsonl", text), &o, &e));
    if (d) {
        const DataReport *r = dataset_report(d);
        EXPECT(dataset_rows(d) == 3 && r->samples == 3 && r->dropped == 3 && r->truncated == 2);
        EXPECT(r->longest == 12 && r->tokens == 18 && r->scored_tokens == 10);
        EXPECT_STR(tiny_row(d, 0), "QQabc<259>|.abc<259>.");
        EXPECT_STR(tiny_row(d, 1), "QQabc<259>|.abc<259>.");
        EXPECT_STR(tiny_row(d, 2), "QQQQa<259>|...a<259>.");
    }
    dataset_close(d);
    o.eos_id = -1; /* without an end: cut as it is */
    expect_row("{\"prompt\": \"QQQQQ\", \"completion\": \"ab\"}", &o, "QQQQQa|....a.");
    tokenizer_close(t);
}

TEST(dataset_cuts_conversations_at_the_end) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 24);
    o.chat = chat;
    char want[300];
    /* 21 tokens of prompt, 'yo', <257>, and a line end that goes first, without counting as cut */
    const char *one = "{\"messages\": [" TURN("user", "hi") ", " TURN("assistant", "yo") "]}";
    snprintf(want, sizeof want, USER "hi" END BOT "yo<257>|%syo<257>.", dots(20));
    expect_row(one, &o, want);
    o.seq = 23; /* the turn's own end takes the place of the last letter, not the tokenizer's EOS */
    snprintf(want, sizeof want, USER "hi" END BOT "y<257>|%sy<257>.", dots(20));
    expect_row(one, &o, want);
    Err e;
    Dataset *d;
    o.seq = 22; /* an end without an answer */
    EXPECT(!dataset_open(&d, tiny_file("data.jsonl", one), &o, &e) && strstr(e.text, "no sample is left of 1"));
    o.seq = 40; /* cut inside the second question: the first answer stays whole */
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END USER "012345678|%syo<257>%s", dots(20), dots(17));
    expect_row("{\"messages\": [" TURN("user", "hi") "," TURN("assistant", "yo") "," TURN("user", "0123456789") ","
               TURN("assistant", "n") "]}", &o, want);
    template_free(chat);
    tokenizer_close(t);
}

/* ---- packing ---- */

/* Documents of known content: document k is k repeated, so that its tokens name it. */
static void write_documents(char *path, size_t size, uint64_t key, int n, int longest) {
    Str s = {0};
    for (int k = 0; k < n; k++) {
        int len = 2 + (int)(rng_u32(key, (uint64_t)k) % (uint32_t)(longest - 1));
        str_add(&s, "{\"ids\": [");
        for (int i = 0; i < len; i++) str_addf(&s, "%s%d", i ? "," : "", i + 1 == len ? 9999 : k);
        str_add(&s, "]}\n");
    }
    snprintf(path, size, "%s", tiny_file("docs.jsonl", s.data));
    str_free(&s);
}

/* Every document stands in exactly one row, whole and in order; returns the tokens seen. */
static int64_t check_packed(const Dataset *d, int64_t seq, int n_docs, bool pieces) {
    int32_t *ids = MEM_NEW(int32_t, seq * 4), *labels = ids + seq, *positions = ids + 2 * seq, *begin = ids + 3 * seq;
    int *seen = MEM_NEW(int, n_docs);
    float *weight = MEM_NEW(float, seq);
    int64_t tokens = 0;
    for (int64_t r = 0; r < dataset_rows(d); r++) {
        dataset_row_fill(d, r, ids, labels, weight, positions, begin);
        int64_t n = dataset_row_tokens(d, r);
        EXPECT(n > 0 && n <= seq);
        tokens += n;
        for (int64_t t = 0; t < n; t++) {
            bool last = t + 1 == n || begin[t + 1] != begin[t];
            EXPECT(labels[t] == (last ? -1 : ids[t + 1]) && positions[t] == t - begin[t]);
            if (!pieces) EXPECT(last == (ids[t] == 9999) && (last || ids[t] == ids[begin[t]]));
            if (ids[t] != 9999) seen[ids[t]] += !pieces ? begin[t] == t : 1;
        }
    }
    for (int k = 0; k < n_docs; k++) EXPECT(pieces ? seen[k] >= 1 : seen[k] == 1);
    mem_free(ids);
    mem_free(seen);
    mem_free(weight);
    return tokens;
}

TEST(dataset_packs_whole_documents) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char path[200];
        int n = 40 + (int)(seed * 97 % 700), seq = 16 + (int)(seed * 31 % 100);
        write_documents(path, sizeof path, seed, n, seq);
        DataOptions o = tiny_options(NULL, seq);
        o.vocab = 10000;
        o.pack = PACK_ON;
        o.seed = seed;
        o.shuffle = seed % 3 != 0;
        Err e;
        Dataset *d = NULL, *again = NULL;
        EXPECT_OK(dataset_open(&d, path, &o, &e) && dataset_open(&again, path, &o, &e));
        if (d && again) {
            const DataReport *r = dataset_report(d);
            EXPECT(check_packed(d, seq, n, false) == r->tokens && r->samples == n);
            EXPECT(r->scored_tokens == r->tokens - n);
            EXPECT(r->fill > 0.9 && r->rows == dataset_rows(d));
            EXPECT(dataset_fingerprint(d) == dataset_fingerprint(again));
        }
        dataset_close(again);
        again = NULL;
        o.seed = seed + 100;
        EXPECT_OK(dataset_open(&again, path, &o, &e));
        if (d && again) EXPECT((dataset_fingerprint(d) != dataset_fingerprint(again)) == o.shuffle);
        dataset_close(d);
        dataset_close(again);
    }
}

TEST(dataset_packs_long_texts_in_pieces) {
    char path[200];
    write_documents(path, sizeof path, 5, 60, 100);
    DataOptions o = tiny_options(NULL, 16);
    o.vocab = 10000;
    o.pack = PACK_ON;
    Err e;
    Dataset *whole = NULL, *d = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    o.seq = 128;
    EXPECT_OK(dataset_open(&whole, path, &o, &e));
    if (d && whole) {
        EXPECT(check_packed(d, 16, 60, true) == dataset_report(whole)->tokens);
        EXPECT(dataset_report(d)->samples == 60 && dataset_report(d)->truncated == 0);
        EXPECT(dataset_report(d)->longest == dataset_report(whole)->longest);
    }
    dataset_close(d);
    dataset_close(whole);
}

/* ---- order and split ---- */

TEST(dataset_order_is_a_permutation_by_seed_and_epoch) {
    char path[200];
    enum { N = 300 };
    write_documents(path, sizeof path, 3, N, 8);
    DataOptions o = tiny_options(NULL, 8);
    o.vocab = 10000;
    o.seed = 42;
    o.shuffle = true;
    Err e;
    Dataset *d = NULL, *other = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e) && dataset_open(&other, path, &o, &e));
    if (!d || !other) return;
    int64_t first[2][N], same = 0, fixed = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[N] = {false};
        for (int i = 0; i < N; i++) {
            first[epoch][i] = dataset_row_at(d, epoch, i);
            EXPECT(!seen[first[epoch][i]]);
            seen[first[epoch][i]] = true;
        }
    }
    for (int i = 0; i < N; i++) {
        same += first[0][i] == first[1][i];
        fixed += first[0][i] == i;
        EXPECT(dataset_row_at(other, i % 2, i) == first[i % 2][i]); /* whatever was asked before */
    }
    EXPECT(same < 10 && fixed < 10);
    dataset_close(other);
    o.seed = 43;
    other = NULL;
    EXPECT_OK(dataset_open(&other, path, &o, &e));
    same = 0;
    for (int i = 0; other && i < N; i++) same += dataset_row_at(other, 0, i) == first[0][i];
    EXPECT(same < 10);
    dataset_close(other);
    o.shuffle = false;
    other = NULL;
    EXPECT_OK(dataset_open(&other, path, &o, &e));
    for (int i = 0; other && i < N; i++) EXPECT(dataset_row_at(other, 5, i) == i);
    dataset_close(other);
    dataset_close(d);
}

TEST(dataset_split_holds_out_the_tail) {
    char path[200];
    enum { N = 1842 };
    write_documents(path, sizeof path, 3, N, 8);
    DataOptions o = tiny_options(NULL, 8);
    o.vocab = 10000;
    o.shuffle = true;
    Err e;
    Dataset *d = NULL, *held = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    int64_t bytes = d ? dataset_bytes(d) : 0, tokens = d ? dataset_report(d)->tokens : 0;
    EXPECT_OK(dataset_split(d, &held, 0.05, &e));
    if (d && held) {
        EXPECT(dataset_rows(d) == 1749 && dataset_rows(held) == 93); /* floor(1842 x 0.95), the guides' count */
        EXPECT(dataset_report(d)->tokens + dataset_report(held)->tokens == tokens);
        EXPECT(dataset_bytes(d) < bytes);
        int32_t ids[8], labels[8], positions[8], begin[8];
        float weight[8];
        for (int i = 0; i < 93; i++) {
            dataset_row_fill(held, i, ids, labels, weight, positions, begin);
            EXPECT(ids[0] == 1749 + i && dataset_row_at(held, 3, i) == i);
        }
        for (int i = 0; i < 1749; i++) {
            dataset_row_fill(d, i, ids, labels, weight, positions, begin);
            EXPECT(ids[0] == i);
        }
    }
    dataset_close(held);
    dataset_close(d);
}

TEST(dataset_split_leaves_something_on_either_side) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    Err e;
    Dataset *d = NULL, *held = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"cd\"}\n"), &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.99, &e));
    EXPECT(d && held && dataset_report(d)->samples == 1 && dataset_report(held)->samples == 1);
    EXPECT(d && dataset_report(d)->dropped + dataset_report(held)->dropped == 1);
    dataset_close(held);
    EXPECT(!dataset_split(d, &held, 0.5, &e) && strstr(e.text, "a.jsonl: holds one document"));
    EXPECT(!dataset_split(d, &held, 1.5, &e) && e.code == ERR_USAGE);
    dataset_close(d);
    d = NULL;
    /* one long text: 12 letters and the end are four pieces, of which the last is held out */
    EXPECT_OK(dataset_open(&d, tiny_file("a.txt", "abcdefghijkl"), &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.25, &e));
    EXPECT(d && held && dataset_report(d)->samples == 1 && dataset_report(d)->longest == 12);
    EXPECT(held && dataset_report(held)->samples == 1 && dataset_report(held)->longest == 1);
    dataset_close(held);
    dataset_close(d);
    tokenizer_close(t);
}

TEST(dataset_takes_the_first_samples_only) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    o.max_samples = 2;
    o.pack = PACK_OFF;
    const char *want[] = {"ab<259>_|b<259>.", "cd<259>_|d<259>."};
    expect_rows("{\"text\": \"ab\"}\n\n{\"text\": \"cd\"}\nnot even JSON\n", &o, 2, want);
    tokenizer_close(t);
}

TEST(dataset_reads_long_lines) {
    enum { LETTERS = 3000000 };
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 1024);
    Str s = {0};
    for (int k = 0; k < 2; k++) {
        str_add(&s, "{\"text\": \"");
        for (int i = 0; i < LETTERS; i++) str_add_char(&s, (char)('a' + i % 26));
        str_add(&s, "\"}\n{\"text\": \"ab\"}\n");
    }
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("long.jsonl", s.data), &o, &e));
    EXPECT(d && dataset_report(d)->tokens == 2 * (LETTERS + 1) + 2 * 3);
    EXPECT(d && dataset_bytes(d) < 2 * (LETTERS + 1) * 4 + 800000);
    dataset_close(d);
    str_free(&s);
    tokenizer_close(t);
}

TEST(dataset_report_reads_well) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 64);
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("data.jsonl", "{\"question\": \"abc\", \"answer\": \"0123456789\"}\n"
                                                       "{\"question\": \"a\", \"answer\": \"b\"}\n"
                                                       "{\"question\": \"a\", \"answer\": \"\"}\n"), &o, &e));
    Str s = {0};
    if (d) dataset_report_text(&s, d);
    EXPECT(strstr(str_text(&s), "data.jsonl: prompt and answer (fields: question, answer), joined as they are\n"
                                "samples  2; 1 dropped (the answer is empty or was cut away)\n"
                                "tokens   17, 13 scored (76 %)\n"
                                "rows     2 of 64 tokens, 13 % filled\n"
                                "         --pack on would need about 1 rows\n"
                                "lengths  median 3, 95 % up to 14, longest 14\n"));
    EXPECT(strstr(str_text(&s), "  up to       8 tokens  ######################################## 2\n"
                                "  up to      16 tokens  ####################                     1\n"));
    str_free(&s);
    dataset_close(d);
    tokenizer_close(t);
}

/* ---- bad data ---- */

typedef struct BadRow {
    const char *name, *text, *says, *also;
} BadRow;

static void expect_refused(const BadRow *bad, const DataOptions *o, ErrCode code) {
    Err e = {0};
    Dataset *d = NULL;
    bool opened = dataset_open(&d, tiny_file(bad->name, bad->text), o, &e);
    bool good = !opened && !d && e.code == code && strstr(e.text, bad->says) && (!bad->also || strstr(e.text, bad->also));
    if (!EXPECT(good)) test_note("    %s gave: %s", bad->text, e.text);
    dataset_close(d);
}

TEST(dataset_refuses_bad_files) {
    static const BadRow bad[] = {
        {"a.jsonl", "", "a.jsonl: is empty", NULL},
        {"a.jsonl", "\n  \n\t\n", "a.jsonl: is empty", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"ab\"\n", "a.jsonl:3: is not JSON", "one object"},
        {"a.jsonl", "I am not sure.\n", "a.jsonl:1: is not JSON", ".txt"},
        {"a.jsonl", "{\"text\": \"a\xff\"}\n", "a.jsonl:1: is not JSON", "0xff"},
        {"a.jsonl", "{\"text\": \"ab\"} {\"text\": \"ab\"}\n", "a.jsonl:1: is not JSON", NULL},
        {"a.jsonl", "{\"text\": \"ab\", \"text\": \"cd\"}\n", "a.jsonl:1: is not JSON", "duplicate"},
        {"a.jsonl", "{\n \"text\": \"ab\"\n}\n", "a.jsonl:1: is not JSON", "one object"},
        {"a.jsonl", "\"text\"\n", "a.jsonl:1: ", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n[1]\n", "a.jsonl:2: a JSON object was expected", NULL},
        {"a.json", "[{\"text\": \"ab\"},\n {\"text\": }]", "a.json:2: is not JSON", "array"},
        {"a.json", "[{\"text\": \"ab\"}\n {\"text\": \"ab\"}]", "a.json:2: ',' or ']' was expected", NULL},
        {"a.json", "[{\"text\": \"ab\"},\n", "a.json:2: is not JSON", NULL},
        {"a.json", "[{\"text\": \"ab\"}", "a.json:1: ',' or ']' was expected", "cut short"},
        {"a.json", "[{\"text\": \"ab\"}]\nx", "a.json:2: something follows", NULL},
        {"a.json", "[\n1]", "a.json:2: is not JSON", "array of objects"},
        {"a.json", "[]", "a.json: holds no samples", NULL},
        {"a.jsonl", "PAR1xxxx", "a.jsonl: is a Parquet file", "JSON lines"},
        {"a.jsonl", "\x1f\x8b\x08", "a.jsonl: is compressed", NULL},
        {"a.txt", "ok\nno\xe9\n", "a.txt:2: byte 0xe9 is not UTF-8", "iconv"},
        {"a.txt", "", "a.txt: no sample is left of 1", NULL},
        {"a.jsonl", "{\"text\": \"\"}\n", "a.jsonl: no sample is left of 1", "--seq"},
    };
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    for (int i = 0; i < COUNT_OF(bad); i++) expect_refused(&bad[i], &o, ERR_FAIL);
    Err e;
    Dataset *d;
    EXPECT(!dataset_open(&d, "/no/such/file.jsonl", &o, &e) && strstr(e.text, "/no/such/file.jsonl: cannot open"));
    EXPECT(!dataset_open(&d, test_tmp(), &o, &e) && strstr(e.text, "is a folder"));
    Str deep = {0};
    str_add(&deep, "{\"text\": ");
    for (int i = 0; i < 100000; i++) str_add_char(&deep, '[');
    expect_refused(&(BadRow){"a.jsonl", deep.data, "a.jsonl:1: is not JSON", "depth"}, &o, ERR_FAIL);
    str_free(&deep);
    tokenizer_close(t);
}

TEST(dataset_refuses_bad_rows) {
    static const BadRow bad[] = {
        {"a.jsonl", "{\"title\": \"x\", \"body\": \"y\"}", "a.jsonl:1: field 'text' is missing (the row has: title, body)",
         "--prompt-template"},
        {"a.jsonl", "{}", "a.jsonl:1: field 'text' is missing (the row has: nothing)", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}",
         "a.jsonl:2: field 'text' is missing (the row has: prompt, completion)", "one kind"},
        {"a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": null}",
         "a.jsonl:2: field 'completion' is missing", NULL},
        {"a.jsonl", "{\"question\": \"a\", \"answer\": 7}", "a.jsonl:1: field 'answer' is a number, text was expected", NULL},
        {"a.jsonl", "{\"text\": [\"ab\"]}", "a.jsonl:1: field 'text' is a list", NULL},
        {"a.jsonl", "{\"ids\": \"1 2\"}", "a.jsonl:1: field 'ids' is text, a list was expected", NULL},
        {"a.jsonl", "{\"ids\": [1, 2]}\n{\"ids\": [1, 260]}", "a.jsonl:2: id 260 at place 1 is not in the model's vocabulary",
         "260 ids"},
        {"a.jsonl", "{\"ids\": [1, -2]}", "a.jsonl:1: id -2 at place 1", NULL},
        {"a.jsonl", "{\"ids\": [1, 4294967297]}", "a.jsonl:1: id 4294967297", NULL},
        {"a.jsonl", "{\"ids\": [1, 2.5]}", "a.jsonl:1: 'ids' holds something else", NULL},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [1]}", "a.jsonl:1: 'ids' and 'labels' are of different lengths", NULL},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [2, 3]}", "a.jsonl:1: label 2 at place 0", "not shifted"},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [1, \"x\"]}", "a.jsonl:1: 'labels' holds something else", NULL},
        {"a.jsonl", "{\"ids\": [1, 2, 3], \"attention_mask\": [1, 0, 1]}", "a.jsonl:1: 'attention_mask' has a hole", NULL},
        {"a.jsonl", "{\"messages\": \"hi\"}", "a.jsonl:1: field 'messages' is text, a list was expected", NULL},
        {"a.jsonl", "{\"messages\": [\"hi\"]}", "a.jsonl:1: messages[0] is not an object", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\"}]}", "a.jsonl:1: messages[0] has no content", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}", "a.jsonl:1: messages[0]: content must be text",
         NULL},
        {"a.jsonl", "{\"messages\": [{\"content\": \"x\"}]}", "a.jsonl:1: messages[0] needs text in 'role'", NULL},
        {"a.jsonl", "{\"conversations\": [{\"from\": \"dog\", \"value\": \"x\"}]}",
         "a.jsonl:1: conversations[0] is from 'dog'", "human, gpt"},
        {"a.jsonl", "{\"messages\": [], \"tools\": {}}", "a.jsonl:1: field 'tools' is an object", NULL},
        {"a.jsonl", "{\"prompt\": [" TURN("user", "a") "], \"completion\": \"b\"}",
         "a.jsonl:1: field 'completion' is text, a list was expected", NULL},
        {"a.jsonl", "{\"messages\": [" TURN("user", "a") "]}", "a.jsonl: no sample is left of 1", NULL},
        {"a.jsonl", "{\"messages\": [" TURN("king", "a") "," TURN("assistant", "b") "]}", "a.jsonl:1: ", "no kings"},
    };
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template("{% if messages[0].role == 'king' %}{{ raise_exception('no kings') }}{% endif %}x");
    DataOptions o = tiny_options(t, 8);
    o.chat = chat;
    for (int i = 0; i < COUNT_OF(bad); i++) expect_refused(&bad[i], &o, ERR_FAIL);
    template_free(chat);
    tokenizer_close(t);
}

TEST(dataset_refuses_what_does_not_go_together) {
    static const char messages[] = "{\"messages\": [" TURN("user", "a") "," TURN("assistant", "b") "]}";
    static const char pair[] = "{\"prompt\": \"a\", \"completion\": \"b\"}";
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    const DataOptions o = tiny_options(t, 8);
    DataOptions x = o;
    expect_refused(&(BadRow){"a.jsonl", messages, "a.jsonl:1: the model has no chat template", "--template none"}, &x, ERR_FAIL);
    x.template_mode = TEMPLATE_NONE;
    x.chat = chat;
    expect_refused(&(BadRow){"a.jsonl", messages, "messages can only be rendered", NULL}, &x, ERR_USAGE);
    x = o;
    x.template_mode = TEMPLATE_CHAT;
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: the model has no chat template", NULL}, &x, ERR_FAIL);
    x.chat = chat;
    expect_refused(&(BadRow){"a.jsonl", "{\"text\": \"a\"}", "--template chat needs prompts", NULL}, &x, ERR_USAGE);
    expect_refused(&(BadRow){"a.txt", "abc", "a.txt: --template chat needs prompts", NULL}, &x, ERR_USAGE);
    x = o;
    x.tokenizer = NULL;
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: text can only be encoded with the model's tokenizer", NULL}, &x,
                   ERR_FAIL);
    x = o;
    x.vocab = 98; /* 'b' is 98 */
    x.eos_id = -1;
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: token 98 ('b') is not below", NULL}, &x, ERR_FAIL);
    x.eos_id = 98;
    expect_refused(&(BadRow){"a.jsonl", pair, "end-of-text id 98", NULL}, &x, ERR_FAIL);
    x = o;
    x.seq = 1;
    expect_refused(&(BadRow){"a.jsonl", pair, "rows of 1 tokens", NULL}, &x, ERR_USAGE);
    x = o;
    x.answer_template = "{a}";
    expect_refused(&(BadRow){"a.jsonl", pair, "needs a prompt template", NULL}, &x, ERR_USAGE);
    x.prompt_template = "{x}";
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: field 'x' is missing (the row has: prompt, completion)", "{{"}, &x,
                   ERR_FAIL);
    x.prompt_template = "{x";
    expect_refused(&(BadRow){"a.jsonl", pair, "'{' at character 1 is not closed", NULL}, &x, ERR_USAGE);
    x = o;
    x.answer_field = "gold";
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: field 'gold' is missing", NULL}, &x, ERR_FAIL);
    template_free(chat);
    tokenizer_close(t);
}

/* ---- real data ---- */

/* Counts from the `tokenizers` library over the same files: encode(question) + encode(answer) + EOS. */
TEST(dataset_gsm8k) {
    char folder[1024], path[1024];
    const char *asset = test_assets("tokenizer-qwen2.5");
    if (!asset) return;
    snprintf(folder, sizeof folder, "%s", asset);
    if (!(asset = test_assets("gsm8k/train.jsonl"))) return;
    snprintf(path, sizeof path, "%s", asset);
    Err e;
    Tokenizer *t = NULL;
    Dataset *d = NULL;
    EXPECT_OK(tokenizer_open(&t, folder, &e));
    DataOptions o = {.tokenizer = t, .eos_id = 151645, .seq = 1024, .vocab = 151936, .shuffle = true};
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    if (d) {
        const DataReport *r = dataset_report(d);
        EXPECT(r->kind == DATA_PROMPT && r->samples == 7473 && r->dropped == 0 && r->truncated == 0);
        EXPECT(r->tokens == 1363378 && r->scored_tokens == 917634);
        EXPECT(r->longest == 537 && r->median == 169 && r->p95 == 313);
    }
    dataset_close(d);
    d = NULL;
    o.seq = 256;
    o.pack = PACK_ON;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    if (d) {
        const DataReport *r = dataset_report(d);
        EXPECT(r->samples == 7473 && r->truncated == 1016 && r->dropped == 0);
        EXPECT(r->tokens == 1308929 && r->scored_tokens == 863185 && r->fill > 0.95);
    }
    dataset_close(d);
    tokenizer_close(t);
}

/* Ids of apply_chat_template in transformers; the last answer begins with a line end, which the template's own line
 * end must not swallow (271 would be both). */
TEST(dataset_qwen_conversation) {
    static const int32_t want[] = {
        151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264, 10950, 17847, 13,
        151645, 198, 151644, 872, 198, 3838, 374, 220, 17, 10, 18, 30, 151645, 198, 151644, 77091, 198, 20, 13, 151645,
        198, 151644, 872, 198, 3036, 220, 19, 10, 19, 30, 715, 151645, 198, 151644, 77091, 198, 198, 2132, 374, 220, 23,
        13, 151645, 198};
    const char *folder = test_assets("tokenizer-qwen2.5");
    if (!folder) return;
    Err e;
    Tokenizer *t = NULL;
    Template *chat = NULL;
    Dataset *d = NULL;
    bool found = false;
    EXPECT_OK(tokenizer_open(&t, folder, &e) && template_load(&chat, &found, folder, &e));
    EXPECT(found);
    DataOptions o = {.tokenizer = t, .chat = chat, .eos_text = "<|im_end|>", .eos_id = 151645, .seq = 64, .vocab = 151936};
    EXPECT_OK(dataset_open(&d, tiny_file("q.jsonl", "{\"messages\": [" TURN("user", "What is 2+3?") ","
                                                    TURN("assistant", "5.") "," TURN("user", "And 4+4? \\n") ","
                                                    TURN("assistant", "\\nIt is 8.") "]}"), &o, &e));
    if (d) {
        int32_t ids[64], labels[64], positions[64], begin[64];
        float weight[64];
        dataset_row_fill(d, 0, ids, labels, weight, positions, begin);
        EXPECT(dataset_row_tokens(d, 0) == COUNT_OF(want) && !memcmp(ids, want, sizeof want));
        for (int i = 0; i < 64; i++) /* "5." and its end; "\nIt is 8." and its end */
            EXPECT(labels[i] == ((i >= 35 && i < 38) || (i >= 54 && i < 61) ? ids[i + 1] : -1));
    }
    dataset_close(d);
    template_free(chat);
    tokenizer_close(t);
}
