// The hottest functions of a stream, chunk by chunk, by grafana's JFR parser:
//
//	flightline record -o - -- ./server | go run .
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"sort"

	"github.com/grafana/jfr-parser/parser"
	"github.com/grafana/jfr-parser/parser/types"
)

func main() {
	in, own, chunks, samples := bufio.NewReaderSize(os.Stdin, 1<<20), map[string]int{}, 0, 0
	for {
		// The header has the length of the chunk from its first byte on.
		head, err := in.Peek(16)
		if err == io.EOF {
			break
		} else if err != nil {
			log.Fatal(err)
		} else if string(head[:4]) != "FLR\x00" {
			log.Fatal("no chunk begins here: a stream is wanted, as `flightline record -o -` writes it")
		}
		size := binary.BigEndian.Uint64(head[8:])
		if size < 68 || size > 1<<28 {
			log.Fatal("a chunk of ", size, " bytes")
		}
		chunk := make([]byte, size)
		if _, err := io.ReadFull(in, chunk); err != nil {
			log.Fatal("the stream ends inside a chunk: ", err)
		}
		events := parser.NewParser(chunk, parser.Options{SymbolProcessor: parser.ProcessSymbols})
		for typ, err := events.ParseEvent(); err != io.EOF; typ, err = events.ParseEvent() {
			if err != nil {
				log.Fatal(err)
			}
			if typ != events.TypeMap.T_EXECUTION_SAMPLE {
				continue
			}
			samples++
			stack := events.GetStacktrace(events.ExecutionSample.StackTrace)
			if stack != nil && len(stack.Frames) > 0 {
				method := events.GetMethod(stack.Frames[0].Method)
				own[events.GetSymbolString(types.SymbolRef(method.Name))]++
			}
		}
		chunks++
	}
	var names []string
	for name := range own {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return own[names[i]] > own[names[j]] })
	for _, name := range names[:min(10, len(names))] {
		fmt.Printf("%d\t%s\n", own[name], name)
	}
	fmt.Printf("%d samples in %d chunks\n", samples, chunks)
}
