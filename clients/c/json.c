/* A parser for the JSON of the scripts and of a driver's requests. */
#include <stdlib.h>

#include "internal.h"

typedef struct reader {
    const char *at, *end;
    int depth;
} reader;

enum { MAX_DEPTH = 64 };

static void space(reader *r) {
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at) r->at++;
}

static void drop(json *value) {
    for (size_t i = 0; i < value->count; i++) drop(&value->items[i]);
    free(value->items);
    free((char *)value->text.data);
}

static bool hex4(reader *r, unsigned *code) {
    *code = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return false;
        *code = *code << 4 | (unsigned)digit;
    }
    return true;
}

static char *utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

static bool string(reader *r, json *value) {
    const char *from = ++r->at, *last = from;
    while (last < r->end && *last != '"') last += *last == '\\' ? 2 : 1;
    if (last >= r->end) return false;
    /* The unescaped text is never longer than the escaped one. */
    char *to = acker_alloc((size_t)(last - from) + 1);
    value->kind = JSON_STRING;
    value->text.data = to;
    while (r->at < last) {
        static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
        const char *name;
        unsigned code, low;
        if (*r->at != '\\') {
            *to++ = *r->at++;
        } else if (*++r->at == 'u') {
            r->at++;
            if (!hex4(r, &code)) return false;
            if (code >> 10 == 0x36 && r->end - r->at > 6 && r->at[0] == '\\' && r->at[1] == 'u') {
                r->at += 2;
                if (!hex4(r, &low) || low >> 10 != 0x37) return false;
                code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            }
            to = utf8(to, code);
        } else if (*r->at && (name = strchr(names, *r->at))) {
            *to++ = means[name - names];
            r->at++;
        } else {
            return false;
        }
    }
    *to = 0;
    value->text.size = (size_t)(to - value->text.data);
    r->at = last + 1;
    return true;
}

static bool word(reader *r, json *value, const char *text, int kind) {
    size_t size = strlen(text);
    if ((size_t)(r->end - r->at) < size || memcmp(r->at, text, size)) return false;
    value->kind = kind;
    r->at += size;
    return true;
}

static bool read_value(reader *r, json *value);

static bool list(reader *r, json *value, bool object) {
    size_t room = 0;
    char close = object ? '}' : ']';
    value->kind = object ? JSON_OBJECT : JSON_LIST;
    r->at++;
    space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        return true;
    }
    for (;;) {
        if (value->count == room) {
            room = room ? 2 * room : 8;
            value->items = acker_more(value->items, room * sizeof *value->items);
        }
        if (!read_value(r, &value->items[value->count++]) || r->at >= r->end) return false;
        char wanted = object && value->count % 2 ? ':' : ',', found = *r->at++;
        if (found == close) return wanted == ',';
        if (found != wanted) return false;
    }
}

static bool read_value(reader *r, json *value) {
    bool good = false;
    memset(value, 0, sizeof *value);
    space(r);
    if (r->at >= r->end || r->depth == MAX_DEPTH) return false;
    r->depth++;
    switch (*r->at) {
    case '"': good = string(r, value); break;
    case '[': good = list(r, value, false); break;
    case '{': good = list(r, value, true); break;
    case 't': good = word(r, value, "true", JSON_TRUE); break;
    case 'f': good = word(r, value, "false", JSON_FALSE); break;
    case 'n': good = word(r, value, "null", JSON_NULL); break;
    default: {
        const char *from = r->at;
        while (r->at < r->end && *r->at && strchr("0123456789+-.eE", *r->at)) r->at++;
        size_t size = (size_t)(r->at - from);
        char *text = acker_alloc(size + 1);
        memcpy(text, from, size);
        text[size] = 0;
        value->kind = JSON_NUMBER;
        value->text.data = text;
        value->text.size = size;
        good = size > 0;
    }
    }
    r->depth--;
    space(r);
    return good;
}

json *acker_json(const char *text, size_t size) {
    reader r = {text, text + size, 0};
    json *value = acker_alloc(sizeof *value);
    if (read_value(&r, value) && r.at == r.end) return value;
    acker_json_free(value);
    return NULL;
}

void acker_json_free(json *value) {
    if (value) drop(value);
    free(value);
}

const json *acker_json_get(const json *object, const char *name) {
    for (size_t i = 0; object && object->kind == JSON_OBJECT && i + 1 < object->count; i += 2) {
        const json *field = &object->items[i];
        if (field->kind == JSON_STRING && !strcmp(field->text.data, name))
            return &object->items[i + 1];
    }
    return NULL;
}
