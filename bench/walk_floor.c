// The minimum work of a JFR reader: maps the file and follows the chain of event sizes through every chunk, without reading
// anything else. The additional time of a reader is the cost of its job. Prints the number of events.
// usage: walk_floor FILE.jfr
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define HEADER 68

int main(int argc, char **argv) {
    struct stat st;
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &st) < 0) return 1;
    const uint8_t *file = mmap(0, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED) return 1;
    uint64_t events = 0, size = st.st_size;
    for (uint64_t chunk = 0; chunk + HEADER <= size;) {
        uint64_t length = 0;
        for (int i = 0; i < 8; i++) length = length << 8 | file[chunk + 8 + i];
        if (length < HEADER || length > size - chunk) return 1;
        const uint8_t *at = file + chunk + HEADER, *end = file + chunk + length;
        while (at + 9 <= end) {
            uint64_t step = at[0];
            if (step & 128) {
                step &= 127;
                for (int i = 1; i < 9; i++) {
                    step |= (uint64_t)(at[i] & 127) << 7 * i;
                    if (!(at[i] & 128)) break;
                }
            }
            if (step == 0 || step > (uint64_t)(end - at)) return 1;
            at += step;
            events++;
        }
        events += at < end;
        chunk += length;
    }
    printf("%llu\n", (unsigned long long)events);
}
