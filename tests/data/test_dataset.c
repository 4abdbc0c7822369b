/* test_dataset.c - every kind of row token by token, what is scored, what is cut, and real data. */
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

static void expect_row(const char *text, const DataOptions *o, const char *want) {
    expect_rows(text, o, 1, &want);
}

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
    expect_row("{\"ids\": [97, 98, 0], \"attention_mask\": [true, true, false]}", &o, "ab____|b.");
    expect_kind("{\"ids\": [97, 98]}", &o, DATA_IDS, "token ids (field: ids)");
    expect_kind("{\"input_ids\": [97, 98], \"labels\": [97, 98]}", &o, DATA_IDS,
                "token ids (fields: input_ids, labels)");
}

TEST(dataset_prompt_and_answer_are_joined) {
    Tokenizer *t = tiny_tokenizer(false), *bos = tiny_tokenizer(true);
    DataOptions o = tiny_options(t, 8), b = tiny_options(bos, 8);
    expect_row("{\"prompt\": \"Q:\", \"completion\": \" no\"}", &o, "Q: no<259>__|. no<259>.");
    expect_row("{\"prompt\": \"Q:\", \"completion\": \" no\"}", &b, "<258>Q: no<259>_|.. no<259>.");
    expect_row("{\"prompt\": \"\", \"completion\": \"no\"}", &o, "no<259>_____|o<259>.");
    expect_row("{\"prompt\": \"\", \"completion\": \"no\"}", &b, "<258>no<259>____|no<259>.");
    expect_row("{\"prompt\": \"Q\", \"completion\": \"A</s>\"}", &o,
               "QA<259>_____|A<259>."); /* one end is enough */
    o.eos_id = -1;
    expect_row("{\"prompt\": \"Q\", \"completion\": \"A\"}", &o, "QA______|A.");
    tokenizer_close(t);
    tokenizer_close(bos);
}

TEST(dataset_tells_pairs_apart) {
    static const char *const pairs[][2] = {
        {"prompt", "completion"}, {"prompt", "response"},  {"prompt", "answer"}, {"question", "answer"},
        {"query", "response"},    {"problem", "solution"}, {"input", "output"},  {"source", "target"}};
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    for (int i = 0; i < COUNT_OF(pairs); i++) {
        char text[100], kind[100];
        snprintf(text, sizeof text, "{\"id\": 7, \"%s\": \"Q\", \"%s\": \"A\"}", pairs[i][0], pairs[i][1]);
        snprintf(kind, sizeof kind, "prompt and answer (fields: %s, %s), joined as they are", pairs[i][0],
                 pairs[i][1]);
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
    const char *pieces[] = {"abcdefgh|bcdefghi", "ijkl<259>mn<259>|jkl<259>.n<259>.|00000555"};
    expect_rows("{\"text\": \"abcdefghijkl\"}\n{\"text\": \"mn\"}", &o, 2, pieces); /* cut, every token kept */
    expect_row("{\"text\": \"ab\"}", &b, "<258>ab<259>____|ab<259>.");
    o.pack = PACK_OFF;
    const char *cut[] = {"abcdefgh|bcdefgh.", "ijkl<259>___|jkl<259>.", "mn<259>_____|n<259>."};
    expect_rows("{\"text\": \"abcdefghijkl\"}\n{\"text\": \"mn\"}", &o, 3, cut);
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
        EXPECT_STR(tiny_row(d, 0), "One.\\n\\nTw|ne.\\n\\nTwo"); /* the last token predicts the next row's first */
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
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END "%s|%syo<257>..",
             "_______________________________________", dots(20));
    expect_row(one, &o, want);
    /* two answers, and a question that nobody answers */
    const char *two = "{\"messages\": [" TURN("user", "hi") "," TURN("assistant", "yo") "," TURN(
        "user", "k") "," TURN("assistant", "n") "," TURN("user", "?") "]}";
    snprintf(want, sizeof want,
             USER "hi" END BOT "yo" END USER "k" END BOT "n" END "________________|%syo<257>%sn<257>..", dots(20),
             dots(21));
    expect_row(two, &o, want);
    o.score = SCORE_LAST;
    snprintf(want, sizeof want, USER "hi" END BOT "yo" END USER "k" END BOT "n" END "________________|%sn<257>..",
             dots(44));
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
    EXPECT_OK(dataset_open(&a,
                           tiny_file("a.jsonl",
                                     "{\"system\": \"S\", \"conversations\": [{\"from\": \"human\", "
                                     "\"value\": \"hi\"}, {\"from\": \"gpt\", \"value\": \"yo\"}]}"),
                           &o, &e));
    EXPECT_OK(dataset_open(&b,
                           tiny_file("b.jsonl", "{\"messages\": [" TURN("system", "S") "," TURN(
                                                    "user", "hi") "," TURN("assistant", "yo") "]}"),
                           &o, &e));
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

TEST(a_system_field_begins_a_conversation_that_has_no_system_turn) {
    static const char *const rows[] = {
        "{\"messages\": [" TURN("system", "S") "," TURN("user", "hi") "," TURN("assistant", "yo") "]}",
        "{\"system\": \"S\", \"messages\": [" TURN("user", "hi") "," TURN("assistant", "yo") "]}",
        "{\"system\": \"other\", \"messages\": [" TURN("system", "S") "," TURN("user", "hi") "," TURN(
            "assistant", "yo") "]}",
    };
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 80);
    o.chat = chat;
    uint64_t first = 0;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Err e;
        Dataset *d = NULL;
        EXPECT_OK(dataset_open(&d, tiny_file("a.jsonl", rows[i]), &o, &e));
        if (!d) continue;
        if (!i) first = dataset_fingerprint(d);
        EXPECT(dataset_fingerprint(d) == first);
        dataset_close(d);
    }
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
    expect_row("{\"prompt\": [" TURN("user", "a") "," TURN("assistant", "b") "," TURN(
                   "user", "c") "], \"completion\": [" TURN("assistant", "d") "]}",
               &o, want);
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
    Template *chat = tiny_template(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}a:{% endif %}");
    DataOptions o = tiny_options(t, 24);
    o.chat = chat;
    expect_row("{\"messages\": [" TURN("user", "q") "," TURN("assistant", "r") "," TURN("user", "s") "," TURN(
                   "assistant", "t") "]}",
               &o, "u:q\\na:r\\nu:s\\na:t\\n________|.....r\\n......t\\n.");
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
        EXPECT(strstr(s.data, "in 1 conversations earlier answers are not scored"));
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
    const char *text =
        "{\"prompt\": \"QQ\", \"completion\": \"abc\"}\n"       /* fits exactly */
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
    expect_row("{\"messages\": [" TURN("user", "hi") "," TURN("assistant", "yo") "," TURN(
                   "user", "0123456789") "," TURN("assistant", "n") "]}",
               &o, want);
    template_free(chat);
    tokenizer_close(t);
}

/* ---- files ---- */

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
    o.pack = PACK_OFF;
    Err e;
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d,
                           tiny_file("data.jsonl",
                                     "{\"question\": \"abc\", \"answer\": \"0123456789\"}\n"
                                     "{\"question\": \"a\", \"answer\": \"b\"}\n"
                                     "{\"question\": \"a\", \"answer\": \"\"}\n"),
                           &o, &e));
    Str s = {0};
    if (d) dataset_report_text(&s, d);
    EXPECT(strstr(str_text(&s),
                  "data.jsonl: prompt and answer (fields: question, answer), joined as they are\n"
                  "samples  2; 1 dropped (the answer is empty or was cut away)\n"
                  "tokens   17, 13 scored (76 %)\n"
                  "rows     2 of 64 tokens, 13 % filled\n"
                  "         --pack update would need about 1 rows\n"
                  "lengths  median 3, 95 % up to 14, longest 14\n"));
    EXPECT(strstr(str_text(&s),
                  "  up to       8 tokens  ######################################## 1\n"
                  "  up to      16 tokens  ######################################## 1\n"));
    dataset_close(d);
    d = NULL;
    o.seq = 256;
    EXPECT_OK(
        dataset_open(&d, tiny_file("data.jsonl", "{\"question\": \"abc\", \"answer\": \"0123456789\"}\n"), &o, &e));
    str_clear(&s);
    if (d) dataset_report_text(&s, d);
    EXPECT(strstr(str_text(&s), "         --seq 64 would be enough: no sample is longer\n"));
    dataset_pack_updates(d, true);
    str_clear(&s);
    if (d) dataset_report_text(&s, d);
    EXPECT(strstr(str_text(&s),
                  "rows     of 256 tokens; the samples of an update are put side by side (a row each would be 5 % "
                  "filled)\n"));
    str_free(&s);
    dataset_close(d);
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
        EXPECT(r->tokens == 1308929 && r->scored_tokens == 863185 && r->fill > 0.85);
    }
    dataset_close(d);
    tokenizer_close(t);
}

/* Ids of apply_chat_template in transformers; the last answer begins with a line end, which the template's own
 * line end must not swallow (271 would be both). */
TEST(dataset_qwen_conversation) {
    static const int32_t want[] = {151644, 8948,  198,  2610, 525, 1207,   16948,  11,     3465,   553,    54364,
                                   14817,  13,    1446, 525,  264, 10950,  17847,  13,     151645, 198,    151644,
                                   872,    198,   3838, 374,  220, 17,     10,     18,     30,     151645, 198,
                                   151644, 77091, 198,  20,   13,  151645, 198,    151644, 872,    198,    3036,
                                   220,    19,    10,   19,   30,  715,    151645, 198,    151644, 77091,  198,
                                   198,    2132,  374,  220,  23,  13,     151645, 198};
    const char *folder = test_assets("tokenizer-qwen2.5");
    if (!folder) return;
    Err e;
    Tokenizer *t = NULL;
    Template *chat = NULL;
    Dataset *d = NULL;
    bool found = false;
    EXPECT_OK(tokenizer_open(&t, folder, &e) && template_load(&chat, &found, folder, &e));
    EXPECT(found);
    DataOptions o = {
        .tokenizer = t, .chat = chat, .eos_text = "<|im_end|>", .eos_id = 151645, .seq = 64, .vocab = 151936};
    EXPECT_OK(dataset_open(
        &d,
        tiny_file("q.jsonl", "{\"messages\": [" TURN("user", "What is 2+3?") "," TURN("assistant", "5.") "," TURN(
                                 "user", "And 4+4? \\n") "," TURN("assistant", "\\nIt is 8.") "]}"),
        &o, &e));
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
