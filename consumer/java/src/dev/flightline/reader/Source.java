package dev.flightline.reader;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channel;
import java.nio.channels.FileChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;

/** Where bytes come from, waiting for them or not. */
abstract class Source implements Closeable {
    /** -1 at the end; 0 if there is nothing now, which only happens without `wait`. */
    abstract int read(byte[] into, int at, int most, boolean wait) throws IOException;

    /** The file behind it, to be looked at ahead of reading; null if there is none. */
    FileChannel file() {
        return null;
    }

    static Source of(InputStream in) {
        return new Source() {
            @Override
            int read(byte[] into, int at, int most, boolean wait) throws IOException {
                if (!wait) {
                    int there = in.available();
                    if (there <= 0) {
                        return 0;
                    }
                    most = Math.min(most, there);
                }
                return in.read(into, at, most);
            }

            @Override
            public void close() throws IOException {
                in.close();
            }
        };
    }

    static Source of(ReadableByteChannel channel) throws IOException {
        if (channel instanceof SelectableChannel) {
            return new Selected(channel, (SelectableChannel) channel);
        }
        boolean file = channel instanceof FileChannel;
        return new Source() {
            @Override
            int read(byte[] into, int at, int most, boolean wait) throws IOException {
                if (!wait && !file) {
                    return 0;
                }
                return channel.read(ByteBuffer.wrap(into, at, most));
            }

            @Override
            FileChannel file() {
                return file ? (FileChannel) channel : null;
            }

            @Override
            public void close() throws IOException {
                channel.close();
            }
        };
    }

    /** A pipe or socket of java.nio: never blocked on but by a selector, so that polling and waiting mix. */
    private static final class Selected extends Source {
        private final ReadableByteChannel in;
        private final Selector selector;
        private final Channel channel;

        Selected(ReadableByteChannel in, SelectableChannel channel) throws IOException {
            this.in = in;
            this.channel = channel;
            channel.configureBlocking(false);
            selector = channel.provider().openSelector();
            channel.register(selector, SelectionKey.OP_READ);
        }

        @Override
        int read(byte[] into, int at, int most, boolean wait) throws IOException {
            while (true) {
                int n = in.read(ByteBuffer.wrap(into, at, most));
                if (n != 0 || !wait) {
                    return n;
                }
                selector.select();
                selector.selectedKeys().clear();
                if (Thread.interrupted()) {
                    throw new java.io.InterruptedIOException("interrupted while waiting for the stream");
                }
            }
        }

        @Override
        public void close() throws IOException {
            try {
                channel.close();
            } finally {
                selector.close();
            }
        }
    }
}
