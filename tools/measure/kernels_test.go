package main

import (
	"testing"

	"pegasus/tools/measure/internal/workload"
)

// gcc's code for each benchmark kernel computes the same as the engine.
func TestKernelsAgree(t *testing.T) {
	for _, name := range workload.Names {
		t.Run(name, func(t *testing.T) {
			w, err := workload.New(name)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			p, err := startC(w)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			w.Clear()
			if err := w.Run(1); err != nil {
				t.Fatal(err)
			}
			ours := w.Result()
			w.Clear()
			if _, err := p.Run(launches(w)); err != nil {
				t.Fatal(err)
			}
			theirs := w.Result()
			if err := w.Compare(ours, theirs); err != nil {
				t.Error(err)
			}
			theirs[len(theirs)/3] += 1
			if err := w.Compare(ours, theirs); err == nil {
				t.Error("a wrong result passes")
			}
		})
	}
}
