// Two goroutines on threads of their own, each of which uses its time in one function, deep below others.
// usage: outside SECONDS_PER_THREAD
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

var sink uint64

func threadCPU() int64 {
	var t [2]int64
	const threadCPUClock = 3
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUClock, uintptr(unsafe.Pointer(&t)), 0)
	return t[0]*1000000000 + t[1]
}

//go:noinline
func spin(seed uint64) uint64 {
	x := seed | 1
	for i := 0; i < 400000; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func goAlpha(seed uint64) uint64 { return spin(seed) + 1 }

//go:noinline
func goBeta(seed uint64) uint64 { return spin(seed) + 2 }

//go:noinline
func descend(depth int, seed uint64, leaf func(uint64) uint64) uint64 {
	if depth > 0 {
		return descend(depth-1, seed+1, leaf) + 1
	}
	return leaf(seed)
}

// First the work of one function, then that of the other: 70 parts of 100, and 30.
func worker(seconds float64, name string, truth *os.File, done *sync.WaitGroup) {
	defer done.Done()
	runtime.LockOSThread()
	for _, part := range []struct {
		name  string
		share float64
		run   func(uint64) uint64
	}{{"goAlpha", 0.7, goAlpha}, {"goBeta", 0.3, goBeta}} {
		from := threadCPU()
		for float64(threadCPU()-from) < seconds*part.share*1e9 {
			sink += descend(30, sink, part.run)
		}
		fmt.Fprintf(truth, "function\tmain.%s\t%d\n", part.name, threadCPU()-from)
	}
	fmt.Fprintf(truth, "thread\t%d\t%s\t%d\n", syscall.Gettid(), name, threadCPU())
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	truth, err := os.OpenFile(os.Getenv("TRUTH_FILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0600)
	if err != nil {
		panic(err)
	}
	var done sync.WaitGroup
	done.Add(2)
	for i := 0; i < 2; i++ {
		go worker(seconds, fmt.Sprintf("go-%d", i), truth, &done)
	}
	done.Wait()
}
