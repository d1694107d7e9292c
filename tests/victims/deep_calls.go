// Goroutines deeper than any stack copy: a hundred frames of 2 KiB. Half of the time is spent there, and half
// in allocation, which the runtime does on the thread's own stack.
// usage: deep_calls SECONDS
package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

var sink uint64
var kept [64][]byte

//go:noinline
func spin(seed uint64) uint64 {
	x := seed | 1
	for i := 0; i < 100000; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func allocate(seed uint64) uint64 {
	for i := 0; i < 20; i++ {
		kept[(seed+uint64(i))%64] = make([]byte, 40000)
	}
	return seed
}

//go:noinline
func descend(depth int, until time.Time) uint64 {
	var room [256]uint64
	room[depth] = uint64(depth)
	if depth > 0 {
		return descend(depth-1, until) + room[depth&7]
	}
	for time.Now().Before(until) {
		sink += spin(sink) + allocate(sink)
	}
	return room[0]
}

func worker(until time.Time, done *sync.WaitGroup) {
	defer done.Done()
	sink += descend(99, until)
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	runtime.GOMAXPROCS(2)
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var done sync.WaitGroup
	done.Add(1)
	go worker(until, &done)
	done.Wait()
}
