package dev.flightline.reader;

import java.util.ArrayList;
import java.util.List;

/** What of a stream could not be read, or was held back because it could not be trusted. */
public final class Damage {
    /** More notes are only counted. */
    private static final int MAX_NOTES = 100;

    private final List<String> notes = new ArrayList<>();
    private long places, bytes, events, segments, constants, unknown;

    Damage() {}

    private Damage(Damage of) {
        notes.addAll(of.notes);
        places = of.places;
        bytes = of.bytes;
        events = of.events;
        segments = of.segments;
        constants = of.constants;
        unknown = of.unknown;
    }

    synchronized Damage snapshot() {
        return new Damage(this);
    }

    synchronized void place(long offset, String why) {
        places++;
        note(offset, why);
    }

    synchronized void skipped(long n) {
        bytes += n;
    }

    synchronized void withheld(long n) {
        events += n;
    }

    synchronized void segments(long offset, long n) {
        segments += n;
        note(offset, n + " segments are missing");
    }

    synchronized void constants(long offset, String why) {
        constants++;
        note(offset, "constants of the chunk: " + why);
    }

    synchronized void undeclared() {
        unknown++;
    }

    private void note(long offset, String why) {
        if (notes.size() < MAX_NOTES) {
            notes.add("offset " + offset + ": " + why);
        }
    }

    /** Whether there was any. */
    public boolean any() {
        return places + bytes + events + segments + constants + unknown > 0;
    }

    /** Places where reading had to go on elsewhere, or the stream ended too early. */
    public long places() {
        return places;
    }

    /** Bytes that were passed over. */
    public long bytes() {
        return bytes;
    }

    /** Events that were there and not handed out: their segment's checksum is wrong, or constants that they name are missing. */
    public long events() {
        return events;
    }

    /** Segments of Flightline's streams that are missing, by their numbers. */
    public long segments() {
        return segments;
    }

    /** Checkpoints that could not be read to their end. */
    public long constants() {
        return constants;
    }

    /** Events of types that nobody declared. */
    public long unknown() {
        return unknown;
    }

    /** Where and why, the first hundred. */
    public List<String> notes() {
        return List.copyOf(notes);
    }

    @Override
    public String toString() {
        return places + " damaged places, " + bytes + " bytes skipped, " + events + " events withheld, " + segments
            + " segments missing, " + constants + " checkpoints and " + unknown + " events not understood " + notes;
    }
}
