/* draw_words.c - the vocabulary of the drawn sentences in both languages. */
#include <stddef.h>

#include "amr/draw_int.h"
#include "base/check.h"

/* ---- English ---- */

static const DrawNoun beings_en[] = {
    {"boy", "boys", "boy", "his"},
    {"girl", "girls", "girl", "her"},
    {"teacher", "teachers", "teacher", "her"},
    {"farmer", "farmers", "farmer", "his"},
    {"child", "children", "child", "its"},
    {"dog", "dogs", "dog", "its"},
    {"cat", "cats", "cat", "its"},
    {"doctor", "doctors", "doctor", "her"},
    {"student", "students", "student", "his"},
    {"bird", "birds", "bird", "its"},
    {"sailor", "sailors", "sailor", "his"},
    {"neighbour", "neighbours", "neighbour", "her"},
};
static const DrawNoun things_en[] = {
    {"book", "books", "book", NULL},       {"house", "houses", "house", NULL},
    {"apple", "apples", "apple", NULL},    {"letter", "letters", "letter", NULL},
    {"boat", "boats", "boat", NULL},       {"ball", "balls", "ball", NULL},
    {"lamp", "lamps", "lamp", NULL},       {"picture", "pictures", "picture", NULL},
    {"basket", "baskets", "basket", NULL}, {"drum", "drums", "drum", NULL},
    {"kite", "kites", "kite", NULL},       {"map", "maps", "map", NULL},
};
static const DrawVerb acts_en[] = {
    {"sing", "sings", "sang", "sing-01"},       {"sleep", "sleeps", "slept", "sleep-01"},
    {"laugh", "laughs", "laughed", "laugh-01"}, {"run", "runs", "ran", "run-02"},
    {"dance", "dances", "danced", "dance-01"},  {"wait", "waits", "waited", "wait-01"},
    {"swim", "swims", "swam", "swim-01"},       {"work", "works", "worked", "work-01"},
};
static const DrawVerb sees_en[] = {
    {"see", "sees", "saw", "see-01"},           {"find", "finds", "found", "find-01"},
    {"love", "loves", "loved", "love-01"},      {"carry", "carries", "carried", "carry-01"},
    {"draw", "draws", "drew", "draw-01"},       {"lose", "loses", "lost", "lose-02"},
    {"buy", "buys", "bought", "buy-01"},        {"follow", "follows", "followed", "follow-01"},
    {"wash", "washes", "washed", "wash-01"},    {"watch", "watches", "watched", "watch-01"},
    {"paint", "paints", "painted", "paint-02"}, {"repair", "repairs", "repaired", "repair-01"},
};
static const DrawVerb gives_en[] = {
    {"give", "gives", "gave", "give-01"},
    {"send", "sends", "sent", "send-01"},
    {"show", "shows", "showed", "show-01"},
    {"lend", "lends", "lent", "lend-01"},
};
static const DrawVerb wants_en[] = {
    {"want", "wants", "wanted", "want-01"},
    {"try", "tries", "tried", "try-01"},
    {"hope", "hopes", "hoped", "hope-01"},
    {"begin", "begins", "began", "begin-01"},
};
static const DrawName people_en[] = {{"Ada", "her"},   {"Tom", "his"},  {"Mira", "her"}, {"Otto", "his"},
                                     {"Ruth", "her"},  {"Paul", "his"}, {"Nora", "her"}, {"Emil", "his"},
                                     {"Clara", "her"}, {"Hugo", "his"}};
static const DrawName cities_en[] = {{"Oslo", NULL},  {"Lima", NULL},  {"Hanoi", NULL}, {"Porto", NULL},
                                     {"Kyoto", NULL}, {"Quito", NULL}, {"Turin", NULL}, {"Accra", NULL}};
static const DrawWord adjectives_en[] = {
    {"red", "red"},     {"old", "old"},     {"small", "small"}, {"tall", "tall"},   {"quiet", "quiet"},
    {"happy", "happy"}, {"green", "green"}, {"new", "new"},     {"white", "white"}, {"strange", "strange"}};
static const DrawWord times_en[] = {
    {"today", "today"}, {"tomorrow", "tomorrow"}, {"now", "now"}, {"tonight", "tonight"}, {"again", "again"}};
static const char *const numbers_en[] = {"two", "three", "four", "five", "six", "seven", "eight", "nine"};

/* ---- Vietnamese ---- */

static const DrawNoun beings_vi[] = {
    {"cậu bé", "cậu bé", "cậu_bé", ""},          {"cô gái", "cô gái", "cô_gái", ""},
    {"giáo viên", "giáo viên", "giáo_viên", ""}, {"nông dân", "nông dân", "nông_dân", ""},
    {"đứa trẻ", "đứa trẻ", "đứa_trẻ", ""},       {"con chó", "con chó", "chó", ""},
    {"con mèo", "con mèo", "mèo", ""},           {"bác sĩ", "bác sĩ", "bác_sĩ", ""},
    {"sinh viên", "sinh viên", "sinh_viên", ""}, {"con chim", "con chim", "chim", ""},
    {"thủy thủ", "thủy thủ", "thủy_thủ", ""},    {"ông lão", "ông lão", "ông_lão", ""},
};
static const DrawNoun things_vi[] = {
    {"quyển sách", "quyển sách", "sách", NULL},
    {"ngôi nhà", "ngôi nhà", "nhà", NULL},
    {"quả táo", "quả táo", "táo", NULL},
    {"lá thư", "lá thư", "thư", NULL},
    {"chiếc thuyền", "chiếc thuyền", "thuyền", NULL},
    {"quả bóng", "quả bóng", "bóng", NULL},
    {"ngọn đèn", "ngọn đèn", "đèn", NULL},
    {"bức tranh", "bức tranh", "tranh", NULL},
    {"cái giỏ", "cái giỏ", "giỏ", NULL},
    {"cái trống", "cái trống", "trống", NULL},
    {"con diều", "con diều", "diều", NULL},
    {"tấm bản đồ", "tấm bản đồ", "bản_đồ", NULL},
};
#define VERB(text, concept) \
    {text, text, text, concept}
static const DrawVerb acts_vi[] = {VERB("hát", "hát"),   VERB("ngủ", "ngủ"),           VERB("cười", "cười"),
                                   VERB("chạy", "chạy"), VERB("nhảy múa", "nhảy_múa"), VERB("chờ đợi", "chờ_đợi"),
                                   VERB("bơi", "bơi"),   VERB("làm việc", "làm_việc")};
static const DrawVerb sees_vi[] = {VERB("thấy", "thấy"), VERB("tìm", "tìm"),         VERB("yêu", "yêu"),
                                   VERB("mang", "mang"), VERB("vẽ", "vẽ"),           VERB("đánh mất", "đánh_mất"),
                                   VERB("mua", "mua"),   VERB("đi theo", "đi_theo"), VERB("rửa", "rửa"),
                                   VERB("ngắm", "ngắm"), VERB("sơn", "sơn"),         VERB("sửa chữa", "sửa_chữa")};
static const DrawVerb gives_vi[] = {VERB("tặng", "tặng"), VERB("gửi", "gửi"), VERB("đưa", "đưa"),
                                    VERB("trả", "trả")};
static const DrawVerb wants_vi[] = {VERB("muốn", "muốn"), VERB("cố gắng", "cố_gắng"), VERB("hy vọng", "hy_vọng"),
                                    VERB("bắt đầu", "bắt_đầu")};
static const DrawName people_vi[] = {{"Lan", ""},  {"Minh", ""}, {"Hương", ""}, {"Tuấn", ""}, {"Đức", ""},
                                     {"Ngọc", ""}, {"Bình", ""}, {"Thảo", ""},  {"Quân", ""}, {"Yến", ""}};
static const DrawName cities_vi[] = {{"Huế", NULL},     {"Hà Nội", NULL}, {"Đà Lạt", NULL},    {"Vinh", NULL},
                                     {"Cần Thơ", NULL}, {"Hội An", NULL}, {"Nha Trang", NULL}, {"Sa Pa", NULL}};
static const DrawWord adjectives_vi[] = {{"đỏ", "đỏ"},       {"già", "già"}, {"nhỏ", "nhỏ"},   {"cao", "cao"},
                                         {"hiền", "hiền"},   {"vui", "vui"}, {"xanh", "xanh"}, {"mới", "mới"},
                                         {"trắng", "trắng"}, {"lạ", "lạ"}};
static const DrawWord times_vi[] = {{"hôm nay", "hôm_nay"},
                                    {"ngày mai", "ngày_mai"},
                                    {"bây giờ", "bây_giờ"},
                                    {"tối nay", "tối_nay"},
                                    {"lại", "lại"}};
static const char *const numbers_vi[] = {"hai", "ba", "bốn", "năm", "sáu", "bảy", "tám", "chín"};

#define TABLES(l)                                                                                                 \
    .being = beings_##l, .thing = things_##l, .act = acts_##l, .see = sees_##l, .give = gives_##l,                \
    .want = wants_##l, .people = people_##l, .cities = cities_##l, .adjective = adjectives_##l,                   \
    .time = times_##l, .number = numbers_##l, .n_beings = COUNT_OF(beings_##l), .n_things = COUNT_OF(things_##l), \
    .n_acts = COUNT_OF(acts_##l), .n_sees = COUNT_OF(sees_##l), .n_gives = COUNT_OF(gives_##l),                   \
    .n_wants = COUNT_OF(wants_##l), .n_people = COUNT_OF(people_##l), .n_cities = COUNT_OF(cities_##l),           \
    .n_adjectives = COUNT_OF(adjectives_##l), .n_times = COUNT_OF(times_##l)

static const DrawWords words[] = {
    [AMR_ENGLISH] = {.inflects = true,
                     .agent = ":ARG0",
                     .theme = ":ARG1",
                     .recipient = ":ARG2",
                     .person = "person",
                     .city = "city",
                     .name = "name",
                     TABLES(en),
                     .and_word = "and",
                     .and_concept = "and",
                     .to = "to",
                     .in = "in",
                     .not_word = "not",
                     .who = "who",
                     .recipient_word = "to"},
    [AMR_VIETNAMESE] = {.agent = ":agent",
                        .theme = ":theme",
                        .recipient = ":recipient",
                        .person = "người",
                        .city = "thành_phố",
                        .name = "tên",
                        TABLES(vi),
                        .and_word = "và",
                        .and_concept = "và",
                        .in = "ở",
                        .of_own = "của mình",
                        .not_word = "không",
                        .who = "mà đã",
                        .recipient_word = "cho"},
};

const DrawWords *draw_words(AmrLanguage language) {
    return &words[language];
}
