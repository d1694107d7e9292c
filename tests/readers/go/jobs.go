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
	"github.com/grafana/jfr-parser/parser/types/def"
)

// sample is the key by which samples are counted within a chunk.
type sample struct {
	thread types.ThreadRef
	stack  types.StackTraceRef
}

// job counts events by type (those the parser knows, by its type ids), or samples by thread and stack.
func job(name, file string) error {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	p := parser.NewParser(bytes, parser.Options{})
	kinds := map[string]int{}
	lines := map[string]int{}
	counts := map[sample]int{}
	var chunk parser.ChunkHeader
	// The pools are gone when the event that opens the next chunk has been parsed, so the code uses a copy of
	// the parser.
	var before parser.Parser
	fold := func(p *parser.Parser) {
		for s, n := range counts {
			lines[stack(p, s)] += n
		}
		clear(counts)
	}
	for {
		kind, err := p.ParseEvent()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if h := p.ChunkHeader(); h != chunk {
			fold(&before)
			chunk, before = h, *p
		}
		if err != nil {
			fold(&before)
			break
		}
		if name == "types" {
			kinds[kindName(p, kind)]++
		} else if kind == p.TypeMap.T_EXECUTION_SAMPLE {
			counts[sample{p.ExecutionSample.SampledThread, p.ExecutionSample.StackTrace}]++
		}
	}
	for kind, n := range kinds {
		fmt.Fprintf(out, "%s\t%d\n", kind, n)
	}
	for line, n := range lines {
		fmt.Fprintf(out, "%s %d\n", line, n)
	}
	return nil
}

func kindName(p *parser.Parser, kind def.TypeID) string {
	switch kind {
	case p.TypeMap.T_EXECUTION_SAMPLE:
		return "jdk.ExecutionSample"
	case p.TypeMap.T_WALL_CLOCK_SAMPLE:
		return "profiler.WallClockSample"
	case p.TypeMap.T_MALLOC:
		return "profiler.Malloc"
	case p.TypeMap.T_FREE:
		return "profiler.Free"
	case p.TypeMap.T_ALLOC_IN_NEW_TLAB:
		return "jdk.ObjectAllocationInNewTLAB"
	case p.TypeMap.T_ALLOC_OUTSIDE_TLAB:
		return "jdk.ObjectAllocationOutsideTLAB"
	case p.TypeMap.T_ALLOC_SAMPLE:
		return "jdk.ObjectAllocationSample"
	case p.TypeMap.T_LIVE_OBJECT:
		return "profiler.LiveObject"
	case p.TypeMap.T_MONITOR_ENTER:
		return "jdk.JavaMonitorEnter"
	case p.TypeMap.T_THREAD_PARK:
		return "jdk.ThreadPark"
	case p.TypeMap.T_ACTIVE_SETTING:
		return "jdk.ActiveSetting"
	}
	return "?"
}

func stack(p *parser.Parser, s sample) string {
	name := unresolved
	if i, ok := p.Threads.IDMap[s.thread]; ok {
		t := &p.Threads.Thread[i]
		if name = t.JavaName; name == "" {
			name = t.OsName
		}
	}
	leafFirst := strings.Split(frames(p, s.stack), ";")
	line := []string{name}
	for i := len(leafFirst) - 1; i >= 0; i-- {
		line = append(line, leafFirst[i])
	}
	return strings.Join(line, ";")
}
