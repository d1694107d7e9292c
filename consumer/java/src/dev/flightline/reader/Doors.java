package dev.flightline.reader;

import java.io.FileInputStream;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.InetSocketAddress;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** The places a stream can be had from, by name. */
final class Doors {
    private Doors() {}

    static Source open(String name, String token) throws IOException {
        if (name.equals("-")) {
            return Source.of(System.in);
        }
        if (name.startsWith("fd:")) {
            return Source.of(new FileInputStream("/proc/self/fd/" + name.substring(3)));
        }
        if (name.startsWith("unix:")) {
            return Source.of(unix(name.substring(5)));
        }
        if (name.startsWith("tcp:")) {
            return Source.of(tcp(name, token));
        }
        Path path = Path.of(name);
        if (Files.isRegularFile(path)) {
            return Source.of(FileChannel.open(path));
        }
        return Source.of(new FileInputStream(name));
    }

    /** Unix sockets are in Java since 16; this runs on 11 too. */
    private static SocketChannel unix(String path) throws IOException {
        SocketChannel channel = null;
        boolean connected = false;
        try {
            var lookup = MethodHandles.publicLookup();
            Class<?> address = Class.forName("java.net.UnixDomainSocketAddress");
            MethodHandle of = lookup.findStatic(address, "of", MethodType.methodType(address, String.class));
            MethodHandle open = lookup.findStatic(SocketChannel.class, "open", MethodType.methodType(SocketChannel.class, ProtocolFamily.class));
            ProtocolFamily family = StandardProtocolFamily.valueOf("UNIX");
            channel = (SocketChannel) open.invoke(family);
            channel.connect((SocketAddress) of.invoke(path));
            connected = true;
            return channel;
        } catch (ClassNotFoundException | NoSuchMethodException | IllegalAccessException e) {
            throw new IOException("unix:" + path + ": Unix sockets need Java 16, this is " + System.getProperty("java.version")
                + "; use a FIFO, or socat and standard input");
        } catch (IOException e) {
            throw new IOException("unix:" + path + ": " + e.getMessage(), e);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IOException("unix:" + path, e);
        } finally {
            if (!connected && channel != null) {
                channel.close();
            }
        }
    }

    private static SocketChannel tcp(String name, String token) throws IOException {
        int colon = name.lastIndexOf(':');
        int port;
        try {
            port = colon < 5 ? -1 : Integer.parseInt(name.substring(colon + 1));
        } catch (NumberFormatException e) {
            port = -1;
        }
        if (port < 0 || port > 65535) {
            throw new IOException(name + ": not of the form tcp:HOST:PORT");
        }
        String host = name.substring(4, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        var address = new InetSocketAddress(host, port);
        if (address.isUnresolved()) {
            throw new IOException(name + ": the host has no address");
        }
        SocketChannel channel = SocketChannel.open(address);
        if (token != null) {
            var line = ByteBuffer.wrap((token + "\n").getBytes(StandardCharsets.UTF_8));
            while (line.hasRemaining()) {
                channel.write(line);
            }
        }
        return channel;
    }
}
