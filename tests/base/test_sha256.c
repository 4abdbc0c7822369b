/* test_sha256.c - SHA-256 against the examples of its standard. */
#include "base/sha256.h"
#include "tests/test.h"

static const char *digest_of(const char *text, int64_t piece) {
    static char hex[SHA256_HEX];
    Sha256 s;
    sha256_begin(&s);
    for (int64_t at = 0, n = (int64_t)strlen(text); at < n; at += piece)
        sha256_add(&s, text + at, piece < n - at ? piece : n - at);
    sha256_end_hex(&s, hex);
    return hex;
}

TEST(sha256_gives_the_digests_of_its_standard) {
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    EXPECT_STR(digest_of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_STR(digest_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (int64_t piece = 1; piece < 60; piece += 7)
        EXPECT_STR(digest_of(two_blocks, piece), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(sha256_pads_every_length_of_a_block) {
    char text[200];
    memset(text, 'a', sizeof text);
    text[119] = 0; /* the length just fits no more: two blocks of padding */
    EXPECT_STR(digest_of(text, 64), "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
    text[64] = 0;
    EXPECT_STR(digest_of(text, 64), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}
