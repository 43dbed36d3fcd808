package acker.redis;

import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * Redis connections that need only the JDK: to a server, or to a cluster.
 *
 * <p>Thread-safe: each call has a connection to itself, and idle connections are reused. A command whose
 * reply was lost is not retried, and its connection is closed. MOVED and ASK are followed and TRYAGAIN is
 * retried, because after them the command did not run.
 */
public final class Resp implements Commands, Closeable {
    private static final int SLOTS = 16384;
    private static final int MAX_REDIRECTS = 16;
    private static final long PAUSE_MS = 25;
    private static final byte[] ASKING = ascii("ASKING");

    private final boolean cluster;
    private final boolean tls;
    private final String user;
    private final String password;
    private final int database;
    private final int timeoutMs;
    private final List<String> given = new ArrayList<>();
    private final Map<Integer, String> nodeOf = new ConcurrentHashMap<>();
    private final Map<String, Deque<Connection>> idle = new HashMap<>();
    private final Map<String, Integer> drops = new HashMap<>(); // with the lock of idle
    private boolean closed;

    private Resp(String url, Duration timeout) {
        int scheme = url.indexOf("://");
        String kind = scheme < 0 ? "" : url.substring(0, scheme);
        if (!kind.matches("rediss?(\\+cluster)?")) {
            throw AckerException.refused(
                    "a URL begins with redis://, rediss://, redis+cluster:// or rediss+cluster://");
        }
        if (timeout.toMillis() < 1) throw AckerException.refused("a timeout is at least 1 ms, not %s", timeout);
        tls = kind.startsWith("rediss");
        cluster = kind.endsWith("+cluster");
        timeoutMs = (int) Math.min(timeout.toMillis(), Integer.MAX_VALUE);
        String rest = url.substring(scheme + 3);
        int slash = rest.indexOf('/');
        String number = slash < 0 ? "" : rest.substring(slash + 1);
        if (!number.matches("[0-9]{0,4}") || (cluster && !number.matches("0?"))) {
            // The message does not quote the value, because it may contain a part of a password.
            throw AckerException.refused("after the host of a URL comes / and the number of a database; of a cluster"
                    + " it is 0. In a password, write / ? # @ and %% as %%2F %%3F %%23 %%40 %%25");
        }
        database = number.isEmpty() ? 0 : Integer.parseInt(number);
        String hosts = slash < 0 ? rest : rest.substring(0, slash);
        int at = hosts.lastIndexOf('@');
        String who = at < 0 ? "" : hosts.substring(0, at);
        int colon = who.indexOf(':');
        user = colon <= 0 ? "" : decode(who.substring(0, colon));
        password = colon < 0 ? "" : decode(who.substring(colon + 1));
        for (String host : hosts.substring(at + 1).split(",")) {
            String node = host.isEmpty() ? "localhost" : host;
            given.add(node.matches(".*:[0-9]+") && !node.endsWith("]") ? node : node + ":6379");
        }
        if (given.size() > 1 && !cluster) {
            throw AckerException.refused("for several nodes, which form a cluster, use redis+cluster://");
        }
    }

    /**
     * Returns the connections for {@code redis://[user:password@]host[:port][/database]}; {@code rediss} uses
     * TLS with the JDK's trust store; {@code redis+cluster://host:port,host:port} names some nodes of a
     * cluster. Connects at the first command; the timeout of a reply is five seconds.
     */
    public static Resp connect(String url) {
        return connect(url, Duration.ofSeconds(5));
    }

    /** As {@link #connect(String)}, with the timeout of connecting and of each reply. */
    public static Resp connect(String url, Duration timeout) {
        return new Resp(url, timeout);
    }

    @Override
    public Object send(byte[] key, byte[]... command) throws IOException {
        int slot = cluster ? slotOf(key) : 0;
        long end = System.nanoTime() + timeoutMs * 1_000_000L;
        String asked = null;
        IOException refused = null;
        Set<String> away = new LinkedHashSet<>();
        for (int redirects = 0; ; ) {
            String node = asked == null ? choose(slot, away) : asked;
            if (node == null) throw refused == null ? new IOException("no node is reachable") : refused;
            Connection connection;
            try {
                connection = borrow(node);
            } catch (IOException error) {
                // Nothing was sent. Another node may know which node serves the slot.
                nodeOf.remove(slot, node);
                away.add(node);
                refused = error;
                asked = null;
                if (!cluster) throw error;
                continue;
            }
            Object reply = exchange(connection, asked != null, command);
            asked = null;
            if (!(reply instanceof ReplyException error)) return reply;
            String[] words = error.getMessage().split(" ");
            boolean moved = words[0].equals("MOVED");
            if (cluster && words.length == 3 && (moved || words[0].equals("ASK"))) {
                if (++redirects > MAX_REDIRECTS) throw error;
                String to = words[2].startsWith(":") ? host(node) + words[2] : words[2];
                if (away.contains(to)) throw refused;
                if (moved) {
                    nodeOf.put(slot, to);
                } else {
                    asked = to;
                }
            } else if (!words[0].equals("TRYAGAIN")) {
                if (words[0].equals("CLUSTERDOWN") || words[0].equals("READONLY")) nodeOf.remove(slot, node);
                // The address may lead to another master by now; only a new connection detects that.
                if (AckerException.isDemoted(error.getMessage())) drop(node);
                throw error;
            } else {
                if (System.nanoTime() + PAUSE_MS * 1_000_000 > end) throw error;
                pause(error);
            }
        }
    }

    /** Closes the idle connections; connections in use are closed when their call ends. */
    @Override
    public void close() {
        synchronized (idle) {
            closed = true;
            for (Deque<Connection> each : idle.values()) each.forEach(Connection::close);
            idle.clear();
        }
    }

    /** Returns the slot of a key: CRC16 of the text between the first { and the next }, if it is not empty. */
    static int slotOf(byte[] key) {
        int from = 0;
        int to = key.length;
        for (int i = 0; i < key.length; i++) {
            if (key[i] != '{') continue;
            for (int j = i + 1; j < key.length; j++) {
                if (key[j] != '}') continue;
                if (j > i + 1) {
                    from = i + 1;
                    to = j;
                }
                break;
            }
            break;
        }
        int crc = 0;
        for (int i = from; i < to; i++) {
            crc ^= (key[i] & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
        }
        return (crc & 0xffff) % SLOTS;
    }

    private String choose(int slot, Set<String> away) {
        String node = nodeOf.get(slot);
        if (node != null && !away.contains(node)) return node;
        Set<String> all = new LinkedHashSet<>(given);
        all.addAll(nodeOf.values());
        all.removeAll(away);
        return all.isEmpty() ? null : all.iterator().next();
    }

    private Object exchange(Connection connection, boolean asking, byte[][] command) throws IOException {
        boolean whole = false;
        try {
            if (asking) connection.write(new byte[][] {ASKING});
            connection.write(command);
            connection.out.flush();
            long end = System.nanoTime() + timeoutMs * 1_000_000L;
            if (asking) connection.read(end);
            Object reply = connection.read(end);
            whole = true;
            return reply;
        } finally {
            // A late reply on this connection would count as the reply of the next command.
            if (whole) {
                giveBack(connection);
            } else {
                connection.close();
                drop(connection.node); // its idle connections are probably broken, too
            }
        }
    }

    private Connection borrow(String node) throws IOException {
        int drop;
        synchronized (idle) {
            if (closed) throw new IOException("this client is closed");
            Deque<Connection> its = idle.get(node);
            if (its != null && !its.isEmpty()) return its.pop();
            drop = drops.getOrDefault(node, 0);
        }
        Connection connection = new Connection(node, drop);
        boolean ready = false;
        try {
            if (!password.isEmpty()) {
                if (user.isEmpty()) connection.ask("AUTH", password);
                else connection.ask("AUTH", user, password);
            }
            if (database != 0) connection.ask("SELECT", String.valueOf(database));
            ready = true;
            return connection;
        } finally {
            if (!ready) connection.close();
        }
    }

    private void giveBack(Connection connection) {
        synchronized (idle) {
            if (!closed && connection.drop == drops.getOrDefault(connection.node, 0)) {
                idle.computeIfAbsent(connection.node, node -> new ArrayDeque<>()).push(connection);
                return;
            }
        }
        connection.close();
    }

    /** Closes the connections of a node: idle ones now, the others when they are given back. */
    private void drop(String node) {
        Deque<Connection> its;
        synchronized (idle) {
            its = idle.remove(node);
            drops.merge(node, 1, Integer::sum);
        }
        if (its != null) its.forEach(Connection::close);
    }

    private static void pause(ReplyException error) {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw error;
        }
    }

    private static String host(String node) {
        return node.substring(0, node.lastIndexOf(':'));
    }

    private static String decode(String text) {
        try {
            return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException error) {
            throw AckerException.refused("in the user and password of a URL, write %% as %%25"); // never quote them
        }
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** One connection; not thread-safe. */
    private final class Connection {
        final String node;
        final int drop;
        final OutputStream out;
        private final Socket socket;
        private final InputStream in;
        private final byte[] buffer = new byte[8192];
        private int at;
        private int end;

        Connection(String node, int drop) throws IOException {
            this.node = node;
            this.drop = drop;
            String host = host(node);
            if (host.startsWith("[") && host.endsWith("]")) host = host.substring(1, host.length() - 1);
            int port = Integer.parseInt(node.substring(node.lastIndexOf(':') + 1));
            Socket plain = new Socket();
            boolean ready = false;
            try {
                plain.setTcpNoDelay(true);
                plain.connect(new InetSocketAddress(host, port), timeoutMs);
                plain.setSoTimeout(timeoutMs);
                socket = tls ? secure(plain, host, port) : plain;
                in = socket.getInputStream();
                out = new BufferedOutputStream(socket.getOutputStream(), 16384);
                ready = true;
            } finally {
                if (!ready) plain.close();
            }
        }

        private Socket secure(Socket plain, String host, int port) throws IOException {
            SSLSocketFactory factory = (SSLSocketFactory) SSLSocketFactory.getDefault();
            SSLSocket secure = (SSLSocket) factory.createSocket(plain, host, port, true);
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS"); // without it the host name is not verified
            secure.setSSLParameters(parameters);
            secure.startHandshake();
            return secure;
        }

        void ask(String... words) throws IOException {
            byte[][] command = new byte[words.length][];
            for (int i = 0; i < words.length; i++) command[i] = words[i].getBytes(StandardCharsets.UTF_8);
            write(command);
            out.flush();
            if (read(System.nanoTime() + timeoutMs * 1_000_000L) instanceof ReplyException error) throw error;
        }

        void write(byte[][] command) throws IOException {
            out.write(ascii("*" + command.length + "\r\n"));
            for (byte[] word : command) {
                out.write(ascii("$" + word.length + "\r\n"));
                out.write(word);
                out.write('\r');
                out.write('\n');
            }
        }

        /** Reads one reply; an error is returned, not thrown. {@code until} is by {@link System#nanoTime}. */
        Object read(long until) throws IOException {
            String line = line(until);
            String rest = line.substring(1);
            switch (line.charAt(0)) {
                case '+':
                    return rest;
                case '-':
                    return new ReplyException(rest);
                case ':':
                    return Long.valueOf(rest);
                case '$':
                    int length = Integer.parseInt(rest);
                    if (length < 0) return null;
                    byte[] data = new byte[length];
                    for (int done = 0; done < length; ) {
                        fill(until);
                        int some = Math.min(end - at, length - done);
                        System.arraycopy(buffer, at, data, done, some);
                        done += some;
                        at += some;
                    }
                    next(until);
                    next(until);
                    return data;
                case '*':
                    int count = Integer.parseInt(rest);
                    if (count < 0) return null;
                    List<Object> list = new ArrayList<>(count);
                    for (int i = 0; i < count; i++) list.add(read(until));
                    return list;
                default:
                    throw new IOException("this is not a reply of Redis");
            }
        }

        void close() {
            try {
                socket.close();
            } catch (IOException error) {
                return; // the connection is not used again, so the error does not matter
            }
        }

        private String line(long until) throws IOException {
            byte[] all = new byte[64];
            int size = 0;
            for (int each; (each = next(until)) != '\n'; ) {
                if (size == all.length) all = Arrays.copyOf(all, 2 * size);
                all[size++] = (byte) each;
            }
            if (size > 0 && all[size - 1] == '\r') size--;
            if (size == 0) throw new IOException("this is not a reply of Redis");
            return new String(all, 0, size, StandardCharsets.UTF_8);
        }

        private int next(long until) throws IOException {
            fill(until);
            return buffer[at++];
        }

        private void fill(long until) throws IOException {
            if (at < end) return;
            long left = (until - System.nanoTime()) / 1_000_000;
            if (left <= 0) throw new SocketTimeoutException("no reply within " + timeoutMs + " ms");
            socket.setSoTimeout((int) left);
            int some = in.read(buffer);
            if (some < 0) throw new EOFException("the connection was closed");
            at = 0;
            end = some;
        }
    }
}
