// Command gojfr prints the canonical line of every jdk.ExecutionSample as grafana/jfr-parser (Pyroscope's parser) reads it,
// or does a job of bench/readers.py with it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/grafana/jfr-parser/parser"
	"github.com/grafana/jfr-parser/parser/types"
)

const unresolved = "?"

func main() {
	var err error
	switch {
	case len(os.Args) == 2:
		err = print(os.Args[1])
	case len(os.Args) == 3 && (os.Args[1] == "types" || os.Args[1] == "collapsed"):
		err = job(os.Args[1], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: gojfr [types|collapsed] FILE")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gojfr:", err)
		os.Exit(1)
	}
}

func print(file string) error {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	p := parser.NewParser(bytes, parser.Options{})
	for {
		kind, err := p.ParseEvent()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if kind != p.TypeMap.T_EXECUTION_SAMPLE {
			continue
		}
		e := &p.ExecutionSample
		name, id := unresolved, unresolved
		if i, ok := p.Threads.IDMap[e.SampledThread]; ok {
			t := &p.Threads.Thread[i]
			name, id = t.JavaName, fmt.Sprint(t.OsThreadId)
			if name == "" {
				name = t.OsName
			}
		}
		state := unresolved
		if s := p.GetThreadState(e.State); s != nil {
			state = s.Name
		}
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\n", epochNanos(p.ChunkHeader(), e.StartTime), name, id, state, frames(p, e.StackTrace))
	}
}

// epochNanos computes in float64, as the JDK and JMC do.
func epochNanos(h parser.ChunkHeader, ticks uint64) int64 {
	elapsed := int64(ticks - h.StartTicks)
	return int64(h.StartNanos) + int64(float64(elapsed)*(1e9/float64(h.TicksPerSecond)))
}

func frames(p *parser.Parser, ref types.StackTraceRef) string {
	stack := p.GetStacktrace(ref)
	if stack == nil {
		return unresolved
	}
	names := make([]string, 0, len(stack.Frames))
	for i := range stack.Frames {
		m := p.GetMethod(stack.Frames[i].Method)
		if m == nil {
			names = append(names, unresolved)
			continue
		}
		class := unresolved
		if c := p.GetClass(m.Type); c != nil {
			class = strings.ReplaceAll(symbol(p, c.Name), "/", ".")
		}
		method := symbol(p, m.Name)
		if class != "" {
			method = class + "." + method
		}
		names = append(names, method)
	}
	return strings.Join(names, ";")
}

func symbol(p *parser.Parser, ref types.SymbolRef) string {
	if s := p.GetSymbol(ref); s != nil {
		return s.String
	}
	return unresolved
}
