/* test_sources.c - what files are taken for and which are refused by name; tables; folders; several files, joined
 * in their order or mixed by weight. */
#include <math.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/source.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* ---- what a file is ---- */

static const char *put_file(const char *name, const char *text, int64_t bytes) {
    static char path[300];
    Err e = {0};
    snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
    EXPECT_OK(file_write_all(path, text, bytes, &e));
    return path;
}

#define BYTES(s) s, (int64_t)sizeof(s) - 1

TEST(texts_that_are_read_as_they_stand_say_what_packed_them) {
    static const struct {
        const char *text;
        int64_t bytes;
        const char *says;
    } bad[] = {
        {BYTES("\x1f\x8b\x08\0"), "t: is compressed with gzip. Unpack it first: `gzip -dk FILE`"},
        {BYTES("\x28\xb5\x2f\xfd\0"), "t: is compressed with zstd. Unpack it first: `zstd -dk FILE`"},
        {BYTES("\xfd" "7zXZ\0"), "t: is compressed with xz. Unpack it first: `unxz -k FILE`"},
        {BYTES("PK\x03\x04"), "t: is a zip archive"},
        {BYTES("PAR1"), "t: is a Parquet file. Convert it to JSON lines first"},
        {BYTES("ORC\n\0\1"), "t: is an ORC file"},
    };
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Err e;
        Str text = {0};
        EXPECT(!source_check_text("t", bad[i].text, bad[i].bytes, &e) && str_starts(e.text, bad[i].says));
        str_add(&text, "kept");
        const char *path = put_file("t", bad[i].text, bad[i].bytes);
        EXPECT(!source_read_text(path, &text, 0, &e) && strstr(e.text, bad[i].says));
        EXPECT_STR(str_text(&text), "kept");
        str_free(&text);
    }
    EXPECT(source_check_text("t", "", 0, NULL) && source_check_text("t", "\x1f", 1, NULL));
    EXPECT(source_check_text("t", BYTES("ORCHESTRAS play."), NULL)); /* texts begin with any letters */
}

TEST(files_that_are_no_samples_are_refused_by_name) {
    static const struct {
        const char *name, *text;
        int64_t bytes;
        const char *says, *also;
    } bad[] = {
        {"a.parquet", BYTES("PAR1xxxxxx"), "is a Parquet file", "JSON lines"},
        {"a.arrow", BYTES("ARROW1\0\0"), "is an Arrow file", "JSON lines"},
        {"a.bz2", BYTES("BZh91AY&SY"), "bzip2", "bunzip2"},
        {"a.xz",
         BYTES("\xfd"
               "7zXZ\0\0"),
         "xz", "unxz"},
        {"a.zip", BYTES("PK\x03\x04\x14\0"), "zip archive", "Unpack"},
        {"a.pdf", BYTES("%PDF-1.7\n%"), "is a PDF", "pdftotext"},
        {"a.db", BYTES("SQLite format 3\0"), "SQLite", NULL},
        {"a.npy", BYTES("\x93NUMPY\x01\0"), "NumPy", "ids"},
        {"a.pkl", BYTES("\x80\x04\x95\0"), "pickle", NULL},
        {"a.txt", BYTES("\xff\xfeh\0i\0"), "UTF-16", "iconv"},
        {"a.txt", BYTES("some text with a zero\0 in it"), "binary file", NULL},
        {"a.amr", BYTES("# ::id 1\n# ::snt The boy wants to go.\n(w / want-01\n   :ARG0 (b / boy))\n"),
         "AMR corpus", "snug amr rows"},
        {"amr.txt", BYTES("# AMR release\n\n# ::id 1 ::date x\n# ::snt Go.\n(g / go-02)\n"), "AMR corpus",
         "snug amr rows"},
        {"a.txt", BYTES(" {\"text\": \"hello\"}\n{\"text\": \"you\"}\n"), "is named as plain text and holds JSON",
         ".jsonl"},
        {"a.md", BYTES("# A title\n\nSome text.\n"), "is not a list of samples: it begins with \"# A title\"",
         ".txt"},
        {"a", BYTES("<html><body>"), "is not a list of samples: it begins with \"<html><body>\"", NULL},
        {"a.yaml", BYTES("text: a\n"), "is not a list of samples", NULL},
        {"a.json", BYTES("{\n \"data\": [{\"text\": \"ab\"}]\n}\n"), "a.json:1: is not JSON", "jq"},
        {"a.csv", BYTES(""), "a.csv: is empty", NULL},
        {"a.csv", BYTES("text,text\na,b\n"), "two columns are named 'text'", NULL},
        {"a.csv", BYTES("prompt,answer\na,b\nc\n"), "a.csv:3: has 1 fields, the first line names 2", NULL},
        {"a.csv", BYTES("prompt,answer\na,b,c\n"), "a.csv:2: has more than the 2 fields", "quote"},
        {"a.csv", BYTES("title,body\na,b\n"), "a.csv:2: field 'text' is missing (the row has: title, body)",
         "--text-field"},
        {"a.csv", BYTES("prompt,answer\na,\"b\nc,d\n"), "a.csv:2: a quote that begins a field", "not closed"},
        {"a.csv", BYTES("\"prompt,answer\na,b\n"), "a.csv:1: a quote that begins a field", "not closed"},
        {"a.csv", BYTES("text\nno\xe9\n"), "a.csv:2: is not UTF-8", "iconv"},
    };
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Err e = {0};
        Dataset *d = NULL;
        bool opened = dataset_open(&d, put_file(bad[i].name, bad[i].text, bad[i].bytes), &o, &e);
        if (!EXPECT(!opened && strstr(e.text, bad[i].says) && (!bad[i].also || strstr(e.text, bad[i].also))))
            test_note("    %s: %s", bad[i].name, e.text);
        dataset_close(d);
    }
    tokenizer_close(t);
}

static void expect_rows(const char *path, const DataOptions *o, int n, const char *const *want, const char *kind) {
    Err e = {0};
    Dataset *d = NULL;
    EXPECT_OK(dataset_open(&d, path, o, &e));
    if (!d) return;
    EXPECT(dataset_rows(d) == n);
    for (int i = 0; i < n && i < dataset_rows(d); i++) EXPECT_STR(tiny_row(d, i), want[i]);
    if (kind) EXPECT_STR(dataset_report(d)->kind_text, kind);
    dataset_close(d);
}

TEST(tables_are_read_as_rows) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 12);
    const char *pairs[] = {"q a<259>________| a<259>.", "x,\\ny\"z<259>_____|...\"z<259>.",
                           "k l<259>________| l<259>."};
    expect_rows(
        put_file("a.csv", BYTES("\xef\xbb\xbfid,question,answer\r\n1,q, a\r\n\r\n2,\"x,\ny\",\"\"\"z\"\n3,k, l")),
        &o, 3, pairs, "prompt and answer (fields: question, answer), joined as they are");
    expect_rows(put_file("b.tsv", BYTES("question\tanswer\nq\t a\n\"x,\ny\"\t\"\"\"z\"\nk\t l\n")), &o, 3, pairs, NULL);
    expect_rows(put_file("c.csv", BYTES("question;answer;note\nq; a;1,5\n\"x,\ny\";\"\"\"z\";\nk; l;\n")), &o, 3,
                pairs, NULL);
    const char *blanks[] = {"q a<259>________| a<259>."};
    expect_rows(put_file("d.csv", BYTES("question , answer\nq, a\n")), &o, 1, blanks, NULL);
    /* a first column that is empty, and a long record that the window has to grow for */
    const char *empty[] = {"ab<259>_________|b<259>."};
    o.pack = PACK_OFF;
    expect_rows(put_file("d.tsv", BYTES("note\ttext\n\tab\n")), &o, 1, empty,
                "plain text (field: text); not used: note");
    Str s = {0};
    str_add(&s, "text\n\"");
    for (int i = 0; i < 3000000; i++) str_add(&s, i % 1000 ? "a" : "\n");
    str_add(&s, "\"\nb\n");
    Err e = {0};
    Dataset *d = NULL;
    o.pack = PACK_AUTO;
    EXPECT_OK(dataset_open(&d, put_file("e.csv", s.data, s.len), &o, &e));
    EXPECT(d && dataset_report(d)->samples == 2 && dataset_report(d)->tokens == 3000000 + 1 + 2);
    dataset_close(d);
    str_free(&s);
    tokenizer_close(t);
}

TEST(other_names_of_columns) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 8);
    const char *text[] = {"ab<259>_____|b<259>."};
    o.text_field = "body";
    expect_rows(
        put_file("a.jsonl", BYTES("{\"text\": \"no\", \"body\": \"ab\", \"prompt\": \"p\", \"answer\": \"a\"}\n")),
        &o, 1, text, "plain text (field: body)");
    o.text_field = NULL;
    /* Math500: how it is solved, not the bare answer */
    const char *math[] = {"QS<259>_____|S<259>."};
    expect_rows(
        put_file(
            "m.jsonl",
            BYTES("{\"problem\": \"Q\", \"solution\": \"S\", \"answer\": \"A\", \"subject\": \"x\", \"level\": 3, "
                  "\"unique_id\": \"u\"}\n")),
        &o, 1, math,
        "prompt and answer (fields: problem, solution), joined as they are; not used: answer, subject, level, "
        "unique_id");
    const char *user[] = {"QA<259>_____|A<259>."};
    expect_rows(put_file("u.jsonl", BYTES("{\"user\": \"Q\", \"assistant\": \"A\"}\n")), &o, 1, user, NULL);
    /* a model with a chat template: pairs are turns, said so, with a system text where there is one */
    o.chat = chat;
    o.seq = 40;
    const char *turns[] = {"<256>system\\nS<257>\\n<256>user\\nQ<257>\\n<256>assistant\\nA<257>\\n______|"
                           "..............................A<257>.."};
    expect_rows(put_file("s.jsonl", BYTES("{\"system\": \"S\", \"prompt\": \"Q\", \"completion\": \"A\"}\n")), &o,
                1, turns,
                "prompt and answer (fields: prompt, completion), rendered by the model's chat template "
                "(--template none joins "
                "them as they are)");
    o.template_mode = TEMPLATE_NONE;
    const char *joined[] = {"QA<259>_____________________________________|A<259>."};
    expect_rows(put_file("s.jsonl", BYTES("{\"system\": \"S\", \"prompt\": \"Q\", \"completion\": \"A\"}\n")), &o,
                1, joined, NULL);
    /* content in parts of text */
    o.template_mode = TEMPLATE_AUTO;
    const char *parts[] = {
        "<256>user\\nab<257>\\n<256>assistant\\nA<257>\\n________________|....................A<257>.."};
    expect_rows(
        put_file(
            "p.jsonl",
            BYTES("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                  "{\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n")),
        &o, 1, parts, NULL);
    template_free(chat);
    tokenizer_close(t);
}

TEST(conversations_that_nobody_answers_are_counted) {
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    DataOptions o = tiny_options(t, 40);
    o.chat = chat;
    Err e = {0};
    Dataset *d = NULL;
    Str s = {0};
    EXPECT_OK(
        dataset_open(&d,
                     put_file("a.jsonl", BYTES("{\"messages\": [" TURN("user", "a") "]}\n{\"messages\": [" TURN(
                                             "user", "a") "," TURN("assistant", "b") "]}\n")),
                     &o, &e));
    if (d) dataset_report_text(&s, d);
    EXPECT(d && dataset_report(d)->samples == 1 && dataset_report(d)->unanswered == 1);
    EXPECT(strstr(str_text(&s), "samples  1; 1 dropped (no turn is the assistant's: there is nothing to learn)"));
    str_free(&s);
    dataset_close(d);
    template_free(chat);
    tokenizer_close(t);
}

/* ---- folders and several files ---- */

TEST(a_folder_of_texts_is_a_document_each) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 6);
    Err e = {0};
    Dataset *d = NULL;
    char folder[200];
    snprintf(folder, sizeof folder, "%s/books/b", test_tmp());
    EXPECT_OK(file_make_dirs(folder, &e));
    put_file("books/z.txt", BYTES("zz"));
    put_file("books/a.txt", BYTES("aa"));
    put_file("books/b/c.txt", BYTES("cc"));
    put_file("books/.hidden.txt", BYTES("no"));
    put_file("books/notes.md", BYTES("no"));
    snprintf(folder, sizeof folder, "%s/books", test_tmp());
    const char *rows[] = {"aa<259>cc<259>|a<259>.c<259>.|000333", "zz<259>___|z<259>."};
    expect_rows(folder, &o, 2, rows, "plain text (one document), 3 files, 1 others passed over");
    put_file("books/rows.jsonl", BYTES("{\"text\": \"x\"}\n"));
    EXPECT(!dataset_open(&d, folder, &o, &e) && strstr(e.text, "holds files of different kinds"));
    snprintf(folder, sizeof folder, "%s/empty", test_tmp());
    EXPECT_OK(file_make_dirs(folder, &e));
    EXPECT(!dataset_open(&d, folder, &o, &e) && strstr(e.text, "holds no .txt, .jsonl"));
    tokenizer_close(t);
}

/* n rows of ids; row i of file f is f, i, 0. */
static char *write_ids(int f, int n) {
    static char path[4][300];
    Str s = {0};
    char name[40];
    for (int i = 0; i < n; i++) str_addf(&s, "{\"ids\": [%d, %d, 0], \"labels\": [%d, %d, 0]}\n", f, i, f, i);
    snprintf(name, sizeof name, "part%d.jsonl", f);
    snprintf(path[f], sizeof path[f], "%s", put_file(name, s.data, s.len));
    str_free(&s);
    return path[f];
}

static void look(const Dataset *d, int64_t row, int *file, int *index) {
    int32_t ids[3], labels[3], positions[3], begin[3];
    float weight[3];
    dataset_row_fill(d, row, ids, labels, weight, positions, begin);
    *file = ids[0];
    *index = ids[1];
}

TEST(several_files_are_joined_in_their_order) {
    DataOptions o = tiny_options(NULL, 3);
    o.vocab = 1000;
    Err e = {0};
    Dataset *d = NULL, *held = NULL;
    const DataFile files[] = {{write_ids(0, 40), 0}, {write_ids(1, 20), 0}};
    EXPECT_OK(dataset_open_files(&d, files, 2, &o, &e));
    if (!d) return;
    EXPECT(dataset_rows(d) == 60 && dataset_report(d)->samples == 60 && dataset_report(d)->tokens == 180);
    for (int i = 0, f, k; i < 60; i++) {
        look(d, dataset_row_at(d, 3, i), &f, &k);
        EXPECT(f == i / 40 && k == i % 40);
    }
    Str s = {0};
    dataset_report_text(&s, d);
    EXPECT(strstr(s.data, "part0.jsonl: token ids (fields: ids, labels)\n         40 samples, 120 tokens\n"));
    EXPECT(strstr(s.data, "part1.jsonl: token ids (fields: ids, labels)\n         20 samples, 60 tokens\n"));
    str_free(&s);
    /* the tail of each file is held out */
    EXPECT_OK(dataset_split(d, &held, 0.25, &e));
    EXPECT(held && dataset_rows(held) == 15 && dataset_rows(d) == 45);
    for (int i = 0, f, k; held && i < 15; i++) {
        look(held, i, &f, &k);
        EXPECT(f == i / 10 && k == (f ? 15 + i - 10 : 30 + i));
    }
    dataset_close(held);
    dataset_close(d);
    /* shuffled, an epoch is a permutation over both */
    o.shuffle = true;
    EXPECT_OK(dataset_open_files(&d, files, 2, &o, &e));
    bool seen[60] = {false};
    for (int i = 0; d && i < 60; i++) {
        int64_t row = dataset_row_at(d, 7, i);
        EXPECT(!seen[row]);
        seen[row] = true;
    }
    dataset_close(d);
}

TEST(files_are_mixed_by_weight) {
    DataOptions o = tiny_options(NULL, 3);
    o.vocab = 1000;
    o.shuffle = true;
    o.seed = 11;
    Err e = {0};
    const DataFile files[] = {{write_ids(0, 70), 1}, {write_ids(1, 13), 2.5}, {write_ids(2, 5), 0.5}};
    Dataset *d = NULL;
    EXPECT_OK(dataset_open_files(&d, files, 3, &o, &e));
    if (!d) return;
    EXPECT(dataset_rows(d) == 88);
    int drawn[3] = {0}, times[3][70] = {{0}};
    double all = 4;
    for (int k = 0; k < 5 * 88; k++) {
        int f, i;
        look(d, dataset_row_at(d, k / 88, k % 88), &f, &i);
        drawn[f]++;
        times[f][i]++;
        for (int p = 0; p < 3; p++) /* at every moment each has its share */
            EXPECT(fabs(drawn[p] - files[p].weight / all * (k + 1)) < 3);
    }
    static const int n[] = {70, 13, 5};
    for (int p = 0; p < 3; p++) /* none comes again before all of its file have come */
        for (int i = 0; i < n[p]; i++) EXPECT(times[p][i] == drawn[p] / n[p] || times[p][i] == drawn[p] / n[p] + 1);
    Str s = {0};
    dataset_report_text(&s, d);
    EXPECT(strstr(s.data, "weight 2.5: 62.5 % of the draws, 4.23 times through in an epoch"));
    str_free(&s);
    dataset_close(d);
    const DataFile half[] = {{write_ids(0, 7), 1}, {write_ids(1, 3), 0}};
    EXPECT(!dataset_open_files(&d, half, 2, &o, &e) && e.code == ERR_USAGE &&
           strstr(e.text, "give every --data one, or none"));
}

TEST(texts_beside_samples_are_kept_as_samples) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    Err e = {0};
    Dataset *d = NULL;
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", put_file("a.txt", BYTES("abcdef")));
    snprintf(b, sizeof b, "%s", put_file("b.jsonl", BYTES("{\"prompt\": \"q\", \"completion\": \"r\"}\n")));
    const DataFile files[] = {{a, 0}, {b, 0}};
    EXPECT_OK(dataset_open_files(&d, files, 2, &o, &e));
    EXPECT(d && dataset_packs_updates(d) && dataset_rows(d) == 3);
    if (d) EXPECT_STR(tiny_row(d, 1), "ef<259>_|f<259>.");
    if (d) EXPECT_STR(tiny_row(d, 2), "qr<259>_|r<259>.");
    dataset_close(d);
    tokenizer_close(t);
}

TEST(a_permutation_without_memory) {
    for (int64_t n = 1; n < 3000; n += n < 70 ? 1 : 131) {
        bool *seen = MEM_NEW(bool, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = rng_permuted(5, n, i);
            EXPECT(at >= 0 && at < n && !seen[at]);
            seen[at] = true;
        }
        mem_free(seen);
    }
    EXPECT(rng_permuted(1, (int64_t)1 << 40, 12345) != rng_permuted(2, (int64_t)1 << 40, 12345));
    enum { N = 100, KEYS = 20000 };
    int count[N] = {0};
    for (int k = 0; k < KEYS; k++) count[rng_permuted(rng_fold(3, (uint64_t)k), N, 17)]++;
    double chi = 0;
    for (int i = 0; i < N; i++) chi += (count[i] - KEYS / N) * (count[i] - KEYS / N) / (double)(KEYS / N);
    EXPECT(chi < 160); /* 99 degrees of freedom */
}
