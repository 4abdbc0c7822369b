/* fuzz_reward.c - what a model or a server may say where rewards and remote answers are read.
 *
 * The first line is the gold, the rest the answer. Every reward is missing or from 0 to 1, and an answer that is
 * the gold is worth most. As the body of an HTTP reply, it is an answer, or a reason is given. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "grpo/remote_int.h"
#include "grpo/reward.h"

static void use_rewards(char *gold, const char *answer) {
    char question[] = "What is 3 + 4?";
    Item item = {.question = question, .gold = gold};
    int n;
    const Reward *all = rewards(&n);
    for (int i = 0; i < n; i++) {
        double r = all[i].fn(&(RewardInput){&item, answer, answer});
        CHECK_MSG(isnan(r) || (r >= 0 && r <= 1 + 1e-12), "%s is %g", all[i].name, r);
    }
    double f1 = reward_token_f1(answer, gold);
    CHECK(fabs(f1 - reward_token_f1(gold, answer)) < 1e-12); /* it has no sides */
    CHECK(reward_token_f1(gold, gold) == 1);
}

static void use_reply(const char *body, int64_t bytes) {
    static const RemoteApi apis[] = {REMOTE_CHAT, REMOTE_COMPLETION, REMOTE_OLLAMA};
    for (int i = 0; i < COUNT_OF(apis); i++)
        for (int status = 200; status <= 500; status += 100) {
            RemoteSpec s = {.api = apis[i], .model = "m"};
            HttpReply h = {.status = status, .body = body, .bytes = bytes, .error = ""};
            Reply r;
            remote_read(&r, &s, &h);
            CHECK(r.kind == REPLY_ANSWER ? r.why.len == 0 : r.why.len > 0);
            remote_reply_free(&r);
        }
}

/* The factor: words of both texts, with their places, sorted twice; a JSON tree. */
FUZZ(reward, 1 * MIB, 160) {
    char *text = mem_alloc(size + 1);
    if (size) memcpy(text, data, (size_t)size);
    use_reply(text, (int64_t)strlen(text));
    char *end = strchr(text, '\n');
    if (end) *end = 0;
    use_rewards(text, end ? end + 1 : text);
    mem_free(text);
}
