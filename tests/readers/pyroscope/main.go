// Command pyroscope FILE prints the output of grafana/jfr-parser's package pprof for a recording, the
// conversion that Pyroscope runs when a JFR file is pushed to it: a line for each stack, CPU time and
// wall-clock time alike, frames leaf first, and its samples.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/grafana/jfr-parser/pprof"
)

// Samples per second: each sample then weighs a second, so the folded weight is the number of samples.
const rate = 1

func main() {
	text, err := fold(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pyroscope:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func fold(file string) (string, error) {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	now := time.Now()
	made, err := pprof.ParseJFR(bytes, &pprof.ParseInput{StartTime: now, EndTime: now, SampleRate: rate}, nil)
	if err != nil {
		return "", err
	}
	if m := made.ParseMetrics; m.StacktraceNotFound+m.ClassNotFound+m.MethodNotFound > 0 {
		return "", fmt.Errorf("not found: %+v", m)
	}
	var lines []string
	for _, one := range made.Profiles {
		if one.Metric != "process_cpu" && one.Metric != "wall" {
			continue
		}
		p := one.Profile
		functions := map[uint64]string{}
		for _, f := range p.Function {
			functions[f.Id] = p.StringTable[f.Name]
		}
		locations := map[uint64]string{}
		for _, l := range p.Location {
			var names []string
			for _, line := range l.Line {
				names = append(names, functions[line.FunctionId])
			}
			locations[l.Id] = strings.Join(names, ";")
		}
		for _, s := range p.Sample {
			var frames []string
			for _, id := range s.LocationId {
				frames = append(frames, locations[id])
			}
			lines = append(lines, fmt.Sprintf("%s\t%d\n", strings.Join(frames, ";"), s.Value[0]/(1e9/rate)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
