package acker.redis;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Parses JSON, because the JDK has no parser. Integers become a Long; other numbers are not supported. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Returns a Map, List, String, Long, Boolean or null. */
    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value();
        json.blanks();
        if (json.at != text.length()) throw json.bad();
        return value;
    }

    private Object value() {
        blanks();
        if (at == text.length()) throw bad();
        char first = text.charAt(at);
        return switch (first) {
            case '{' -> object();
            case '[' -> list();
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object() {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        while (!next('}', map.isEmpty())) {
            blanks();
            String name = string();
            blanks();
            expect(':');
            map.put(name, value());
        }
        return map;
    }

    private List<Object> list() {
        List<Object> list = new ArrayList<>();
        at++;
        while (!next(']', list.isEmpty())) list.add(value());
        return list;
    }

    /** Consumes the end and returns true, or consumes the comma before the next element and returns false. */
    private boolean next(char end, boolean first) {
        blanks();
        if (at < text.length() && text.charAt(at) == end) {
            at++;
            return true;
        }
        if (!first) expect(',');
        return false;
    }

    private String string() {
        expect('"');
        StringBuilder found = new StringBuilder();
        while (true) {
            if (at >= text.length()) throw bad();
            char each = text.charAt(at++);
            if (each == '"') return found.toString();
            if (each != '\\') {
                found.append(each);
                continue;
            }
            if (at >= text.length()) throw bad();
            char escaped = text.charAt(at++);
            switch (escaped) {
                case 'n' -> found.append('\n');
                case 't' -> found.append('\t');
                case 'r' -> found.append('\r');
                case 'b' -> found.append('\b');
                case 'f' -> found.append('\f');
                case 'u' -> {
                    if (at + 4 > text.length()) throw bad();
                    found.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                    at += 4;
                }
                default -> found.append(escaped);
            }
        }
    }

    private Long number() {
        int begin = at;
        while (at < text.length() && "+-0123456789".indexOf(text.charAt(at)) >= 0) at++;
        if (at == begin) throw bad();
        return Long.valueOf(text.substring(begin, at));
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw bad();
        at += word.length();
        return value;
    }

    private void expect(char wanted) {
        if (at >= text.length() || text.charAt(at) != wanted) throw bad();
        at++;
    }

    private void blanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
    }

    private IllegalArgumentException bad() {
        return new IllegalArgumentException("invalid or unsupported JSON at " + at);
    }
}
