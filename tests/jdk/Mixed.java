// A little of every kind of event: locks, allocation, exceptions, files, sockets, collections.
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

public class Mixed {
    static final Object FIRST = new Object(), SECOND = new StringBuilder();
    static volatile Object sink;
    static final List<Object> kept = new ArrayList<>();

    static void hold(Object lock, long ms) {
        synchronized (lock) {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    static void fail(int i) {
        try {
            if (i % 3 == 0) throw new IllegalStateException("state " + i % 2);
            throw new IOException("io");
        } catch (Exception e) {
            sink = e;
        }
    }

    static long spin(long ms) {
        long end = System.nanoTime() + ms * 1_000_000, n = 0;
        while (System.nanoTime() < end) n += Math.floorMod(n * 31, 17) + 1;
        return n;
    }

    static void talk(ServerSocket server) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.getLocalPort())) {
            socket.getOutputStream().write(new byte[5000]);
            socket.getInputStream().readNBytes(300);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    static Thread start(String name, Runnable body, List<Thread> all) {
        Thread thread = new Thread(body, name);
        thread.start();
        all.add(thread);
        return thread;
    }

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 3; t++) {
            start("locker-" + t, () -> {
                for (int i = 0; i < 12; i++) {
                    hold(FIRST, 2);
                    hold(SECOND, 1);
                }
            }, threads);
        }
        start("allocator", () -> {
            for (int i = 0; i < 40_000; i++) {
                sink = new byte[4096];
                if (i % 100 == 0) kept.add(new int[256]);
            }
        }, threads);
        start("spinner", () -> spin(900), threads);
        for (int i = 0; i < 30; i++) fail(i);
        Path file = Files.createTempFile("mixed", ".txt");
        for (int i = 1; i <= 7; i++) Files.write(file, new byte[1000 * i]);
        try (RandomAccessFile in = new RandomAccessFile(file.toFile(), "r")) {
            byte[] buffer = new byte[700];
            while (in.read(buffer) >= 0) {
            }
        }
        try (ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            start("client", () -> talk(server), threads);
            try (Socket socket = server.accept()) {
                socket.getInputStream().readNBytes(5000);
                socket.getOutputStream().write(new byte[300]);
            }
        }
        System.gc();
        for (Thread thread : threads) thread.join();
        System.gc();
        Files.delete(file);
    }
}
