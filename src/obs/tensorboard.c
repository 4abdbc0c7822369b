/* tensorboard.c - the bytes of an event file: records framed by masked CRC-32C, events as protocol buffers by
 * hand.
 *
 *     record:  u64 length | u32 mask(crc(length)) | event | u32 mask(crc(event))         little endian
 *     event:   1: f64 wall time   2: i64 step   3: version text   5: summary   7: session log
 *     summary: 1: value { 1: tag text   2: f32 }  repeated                                               */
#include "obs/tensorboard.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

#define FILE_PREFIX "events.out.tfevents."

enum { HEADER_BYTES = 12, FOOTER_BYTES = 4, VARINT_BYTES = 10, MOST_COPIES = 100 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_TEXT = 2, WIRE_32 = 5 };
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static uint32_t crc32c(const uint8_t *data, int64_t n) {
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* The format stores checksums rotated and shifted, so that a checksum of data holding checksums stays useful. */
static uint32_t masked_crc(const uint8_t *data, int64_t n) {
    uint32_t crc = crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* ---- protocol buffers ---- */

static int put_varint(uint8_t *to, uint64_t value) {
    int n = 0;
    for (; value >= 0x80; value >>= 7) to[n++] = (uint8_t)(value | 0x80);
    to[n++] = (uint8_t)value;
    return n;
}

static void add_bytes(Tensorboard *t, const void *bytes, int64_t n) {
    if (t->used + n + FOOTER_BYTES > TENSORBOARD_RECORD_BYTES) {
        t->too_long = true;
        return;
    }
    memcpy(t->record + t->used, bytes, (size_t)n);
    t->used += n;
}

static void add_varint(Tensorboard *t, uint64_t value) {
    uint8_t bytes[VARINT_BYTES];
    int n = put_varint(bytes, value);
    add_bytes(t, bytes, n);
}

static void add_tag(Tensorboard *t, int field, int wire) {
    add_varint(t, (uint64_t)(field << 3 | wire));
}

static void add_text(Tensorboard *t, int field, const char *text, int64_t n) {
    add_tag(t, field, WIRE_TEXT);
    add_varint(t, (uint64_t)n);
    add_bytes(t, text, n);
}

static void add_f32(Tensorboard *t, int field, double value) {
    float f = (float)value;
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &f, 4);
    put_little(bytes, bits, 4);
    add_tag(t, field, WIRE_32);
    add_bytes(t, bytes, 4);
}

/* ---- events ---- */

void tensorboard_begin(Tensorboard *t, double wall_seconds, int64_t step) {
    uint64_t bits;
    uint8_t bytes[8];
    t->used = HEADER_BYTES;
    t->values_at = -1;
    t->too_long = false;
    memcpy(&bits, &wall_seconds, 8);
    put_little(bytes, bits, 8);
    add_tag(t, EVENT_TIME, WIRE_64);
    add_bytes(t, bytes, 8);
    if (!step) return; /* zero is what a reader takes when the field is absent */
    add_tag(t, EVENT_STEP, WIRE_VARINT);
    add_varint(t, (uint64_t)step);
}

void tensorboard_scalar(Tensorboard *t, const char *tag, double value) {
    uint8_t scratch[VARINT_BYTES];
    int64_t tag_bytes = (int64_t)strlen(tag);
    if (t->values_at < 0) t->values_at = t->used;
    add_tag(t, SUMMARY_VALUE, WIRE_TEXT);
    add_varint(t, (uint64_t)(1 + put_varint(scratch, (uint64_t)tag_bytes) + tag_bytes + 1 + 4));
    add_text(t, VALUE_TAG, tag, tag_bytes);
    add_f32(t, VALUE_SIMPLE, value);
}

/* The values so far become one summary: its head, which holds their length, is put in front of them. */
static void wrap_summary(Tensorboard *t) {
    uint8_t head[1 + VARINT_BYTES] = {EVENT_SUMMARY << 3 | WIRE_TEXT};
    int64_t bytes = t->used - t->values_at, head_bytes = 1 + put_varint(head + 1, (uint64_t)bytes);
    add_bytes(t, head, head_bytes); /* makes room, or finds that there is none */
    if (t->too_long) return;
    memmove(t->record + t->values_at + head_bytes, t->record + t->values_at, (size_t)bytes);
    memcpy(t->record + t->values_at, head, (size_t)head_bytes);
}

/* A record that could not be written whole is cut off again: the file always ends at a record. */
bool tensorboard_end(Tensorboard *t, Err *e) {
    if (t->values_at >= 0) wrap_summary(t);
    if (t->too_long)
        return fail(e, ERR_FAIL, "%s: a record of more than %d bytes", t->path, TENSORBOARD_RECORD_BYTES);
    put_little(t->record, (uint64_t)(t->used - HEADER_BYTES), 8);
    put_little(t->record + 8, masked_crc(t->record, 8), 4);
    put_little(t->record + t->used, masked_crc(t->record + HEADER_BYTES, t->used - HEADER_BYTES), FOOTER_BYTES);
    int64_t whole = t->used + FOOTER_BYTES;
    if (!file_write(t->fd, t->record, whole, t->path, e)) {
        if (!file_cut(t->fd, t->bytes, t->path, NULL)) fail_within(e, "half a record remains");
        return false;
    }
    t->bytes += whole;
    return true;
}

static bool write_head(Tensorboard *t, double wall_seconds, int64_t resumed_step, Err *e) {
    static const char version[] = "brain.Event:2";
    const char start[] = {SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START};
    tensorboard_begin(t, wall_seconds, 0);
    add_text(t, EVENT_VERSION, version, (int64_t)strlen(version));
    if (!tensorboard_end(t, e)) return false;
    if (resumed_step <= 0) return true;
    tensorboard_begin(t, wall_seconds, resumed_step + 1);
    add_text(t, EVENT_SESSION, start, sizeof start);
    return tensorboard_end(t, e);
}

bool tensorboard_open(Tensorboard *t, const char *folder, double wall_seconds, int64_t resumed_step, Err *e) {
    char host[128];
    *t = (Tensorboard){.fd = -1};
    if (gethostname(host, sizeof host)) snprintf(host, sizeof host, "host");
    host[sizeof host - 1] = 0;
    for (char *c = host; *c; c++) *c = (char)(*c == '/' ? '_' : *c);
    for (int copy = 0; copy < MOST_COPIES; copy++) { /* two runs of one process within a second */
        int n = snprintf(t->path, sizeof t->path, "%s/" FILE_PREFIX "%010lld.%s.%d.%d", folder,
                         (long long)wall_seconds, host, (int)getpid(), copy);
        if (n >= (int)sizeof t->path) return fail(e, ERR_FAIL, "%s: the path is too long", folder);
        if (!file_exists(t->path)) break;
    }
    if (!file_open_append(t->path, &t->fd, e)) return false;
    if (write_head(t, wall_seconds, resumed_step, e)) return true;
    tensorboard_close(t);
    return false;
}

bool tensorboard_is_file(const char *name) {
    return str_starts(name, FILE_PREFIX);
}

void tensorboard_close(Tensorboard *t) {
    file_close(t->fd);
    t->fd = -1;
}
