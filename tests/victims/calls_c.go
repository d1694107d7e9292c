// Go code that spends its time in C: a function without frame pointers, called by two callers that alternate.
// usage: calls_c CALLS
package main

/*
static volatile long sink;

__attribute__((noinline)) static void burn(long n) {
    for (long i = 0; i < n; i++)
        sink += i;
}
*/
import "C"

import (
	"os"
	"strconv"
)

//go:noinline
func once() { C.burn(300000) }

//go:noinline
func twice() {
	C.burn(300000)
	C.burn(300000)
}

func main() {
	calls, _ := strconv.Atoi(os.Args[1])
	for i := 0; i < calls; i++ {
		once()
		twice()
	}
}
