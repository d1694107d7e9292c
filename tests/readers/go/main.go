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
		err = print(os.Args[1], false)
	case len(os.Args) == 3 && os.Args[1] == "weights":
		err = print(os.Args[2], true)
	case len(os.Args) == 3 && (os.Args[1] == "types" || os.Args[1] == "collapsed"):
		err = job(os.Args[1], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: gojfr [types|collapsed|weights] FILE")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gojfr:", err)
		os.Exit(1)
	}
}

// print writes execution samples; with weights wall-clock samples too, and how many samples each represents.
func print(file string, weights bool) error {
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
		switch {
		case kind == p.TypeMap.T_EXECUTION_SAMPLE:
			e := &p.ExecutionSample
			fmt.Fprint(out, line(p, e.StartTime, e.SampledThread, e.State, e.StackTrace))
			if weights {
				fmt.Fprint(out, "\t1")
			}
		case weights && kind == p.TypeMap.T_WALL_CLOCK_SAMPLE:
			e := &p.WallClockSample
			fmt.Fprintf(out, "%s\t%d", line(p, e.StartTime, e.SampledThread, e.State, e.StackTrace), e.Samples)
		default:
			continue
		}
		fmt.Fprintln(out)
	}
}

func line(p *parser.Parser, time uint64, thread types.ThreadRef, of types.ThreadStateRef, stack types.StackTraceRef) string {
	name, id := unresolved, unresolved
	if i, ok := p.Threads.IDMap[thread]; ok {
		t := &p.Threads.Thread[i]
		name, id = t.JavaName, fmt.Sprint(t.OsThreadId)
		if name == "" {
			name = t.OsName
		}
	}
	state := unresolved
	if s := p.GetThreadState(of); s != nil {
		state = s.Name
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", epochNanos(p.ChunkHeader(), time), name, id, state, frames(p, stack))
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
