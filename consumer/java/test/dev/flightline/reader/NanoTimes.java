package dev.flightline.reader;

import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;

/** Times of the samples on the clock of System.nanoTime(), of the thread with most of them: NanoTimes FILE. */
public final class NanoTimes {
    public static void main(String[] args) throws Exception {
        var byThread = new HashMap<Long, List<Long>>();
        try (var reader = new StreamReader(new FileInputStream(args[0]))) {
            reader.only("jdk.ExecutionSample");
            for (Event e; (e = reader.next()) != null; ) {
                byThread.computeIfAbsent(e.thread().osThreadId(), t -> new ArrayList<>()).add(e.nanoTime());
            }
        }
        byThread.values().stream().max(Comparator.comparingInt(List::size)).orElseThrow().forEach(System.out::println);
    }
}
